//! What CEL rules may cost. The interpreter knows no limits, so every loop of a compiled expression gets a
//! counter built into its condition; what one rule and all rules of one object may spend together is
//! decided here, and an expression that has spent it all ends with an error. Used by [`super::CelRules`]
//! and the border to the interpreter only.
//!
//! kube-apiserver counts finer (a comparison, a field, ten characters of a text cost one each) and allows a
//! million for a rule and ten million for an object; five of its units make about one round of a loop. It
//! also estimates the cost when a CustomResourceDefinition is written; this does not.

use super::cel_walk::children;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators as op};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds of all loops of one rule, together.
pub(super) const RULE_ROUNDS: u32 = 100_000;
/// Rounds of all rules of one object.
const OBJECT_ROUNDS: u32 = 400_000;
/// Rounds are not all alike; however few there were, after this time there is none more.
const OBJECT_TIME: Duration = Duration::from_secs(5);

/// What a text of CEL cannot say.
const SPEND: &str = "@spend";

thread_local! {
    /// What the expression that runs on this thread may still spend. An expression runs on one thread.
    static LEFT: Cell<Purse> = const { Cell::new(Purse { rounds: 0, until: None }) };
}

#[derive(Clone, Copy)]
struct Purse {
    rounds: u32,
    until: Option<Instant>,
}

/// Whose budget was too small.
#[derive(Debug, PartialEq)]
pub(super) enum Exceeded {
    Rule,
    Object,
}

/// What the rules of one object may spend.
pub(super) struct Budget {
    rounds: Cell<u32>,
    until: Option<Instant>,
    exhausted: Cell<bool>,
}

impl Budget {
    /// The budget of an object whose validation begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            rounds: Cell::new(OBJECT_ROUNDS),
            until: now.checked_add(OBJECT_TIME),
            exhausted: Cell::new(false),
        }
    }

    /// Runs one expression, which costs a round by itself, unless it spends more than it may: whatever it
    /// made of that does not count.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Exceeded> {
        let late = || self.until.is_some_and(|until| Instant::now() > until);
        let rounds = self.rounds.get().saturating_sub(1).min(RULE_ROUNDS);
        if rounds == 0 || late() {
            self.exhausted.set(true);
            return Err(Exceeded::Object);
        }
        LEFT.set(Purse { rounds, until: self.until });
        let result = work();
        let left = LEFT.get().rounds;
        self.rounds.set(self.rounds.get().saturating_sub(1 + rounds - left));
        if left > 0 {
            return Ok(result);
        }
        self.exhausted.set(true);
        Err(if rounds == RULE_ROUNDS && !late() { Exceeded::Rule } else { Exceeded::Object })
    }

    /// Whether no further rule is to run.
    pub(super) fn exhausted(&self) -> bool {
        self.exhausted.get()
    }
}

/// Takes rounds from what is left; a purse that cannot pay is empty from then on.
fn spend(rounds: u32) -> Result<(), ExecutionError> {
    let mut purse = LEFT.get();
    // Looking at the clock costs more than a round; now and then is enough.
    let late = purse.rounds.is_multiple_of(64) && purse.until.is_some_and(|t| Instant::now() > t);
    purse.rounds = if late { 0 } else { purse.rounds.saturating_sub(rounds) };
    LEFT.set(purse);
    if purse.rounds == 0 {
        return Err(ExecutionError::function_error(SPEND, "actual cost limit exceeded"));
    }
    Ok(())
}

/// Adds what metered expressions call, and puts a price on what makes much out of little.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(SPEND, || spend(1).map(|()| true));
    context.add_function("lists.range", |count: i64| {
        let count = u32::try_from(count).map_err(|_| {
            ExecutionError::function_error("lists.range", "the argument is out of range")
        })?;
        spend(count)?;
        Ok(Cel::List(Arc::new((0..i64::from(count)).map(Cel::Int).collect())))
    });
}

/// Builds a counter into every loop of an expression.
pub(super) fn meter(expression: &mut IdedExpr) {
    children(expression, meter);
    if let Expr::Comprehension(c) = &mut expression.expr {
        let condition = std::mem::take(&mut c.loop_cond);
        let spend = call(SPEND, Vec::new());
        let stop = IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Boolean(false.into())) };
        c.loop_cond = call(op::CONDITIONAL, vec![spend, condition, stop]);
    }
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let call = CallExpr { func_name: name.to_owned(), target: None, args };
    IdedExpr { id: 0, expr: Expr::Call(call) }
}
