//! The cost limits of CEL rules. The interpreter has no limits, so every loop of a compiled expression gets
//! a counter in its condition. This module decides what one rule, and all rules of one object, may spend;
//! an expression that exceeds it ends with an error. Only [`super::CelRules`] and the interface to the
//! interpreter use it.
//!
//! kube-apiserver counts more finely (a comparison, a field and ten characters of text cost one each) and
//! allows a million for a rule and ten million for an object; five of its units make about one round of a
//! loop. It also estimates the cost when a CustomResourceDefinition is written; this module does not.

use super::cel_walk::children;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators as op};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most rounds of all loops of one rule.
pub(super) const RULE_ROUNDS: u32 = 100_000;
/// The most rounds of all rules of one object.
const OBJECT_ROUNDS: u32 = 400_000;
/// The longest time for the rules of one object, because rounds differ in cost.
const OBJECT_TIME: Duration = Duration::from_secs(5);

/// A name that no CEL text can contain.
const SPEND: &str = "@spend";

thread_local! {
    /// What the expression on this thread may still spend. An expression runs on one thread.
    static LEFT: Cell<Purse> = const { Cell::new(Purse { rounds: 0, until: None }) };
}

#[derive(Clone, Copy)]
struct Purse {
    rounds: u32,
    until: Option<Instant>,
}

/// The budget that was exceeded.
#[derive(Debug, PartialEq)]
pub(super) enum Exceeded {
    Rule,
    Object,
}

/// The budget of the rules of one object.
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

    /// Runs one expression, which itself costs one round. If it exceeds the budget, its result is
    /// discarded.
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

    /// Whether no further rule may run.
    pub(super) fn exhausted(&self) -> bool {
        self.exhausted.get()
    }
}

/// Takes rounds from the purse. A purse that cannot pay stays empty.
fn spend(rounds: u32) -> Result<(), ExecutionError> {
    let mut purse = LEFT.get();
    // Reading the clock costs more than a round, so it is read only now and then.
    let late = purse.rounds.is_multiple_of(64) && purse.until.is_some_and(|t| Instant::now() > t);
    purse.rounds = if late { 0 } else { purse.rounds.saturating_sub(rounds) };
    LEFT.set(purse);
    if purse.rounds == 0 {
        return Err(ExecutionError::function_error(SPEND, "actual cost limit exceeded"));
    }
    Ok(())
}

/// Adds the counter function, and charges for functions that make large results from small arguments.
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

/// Adds a counter to every loop of an expression.
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
