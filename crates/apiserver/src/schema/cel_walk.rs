//! Visits the children of a CEL expression. All code that rewrites expressions before they run uses it; it
//! decides nothing about them.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// Visits the direct children of an expression.
pub(super) fn children(expression: &mut IdedExpr, mut visit: impl FnMut(&mut IdedExpr)) {
    match &mut expression.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| visit(target));
            call.args.iter_mut().for_each(visit);
        }
        Expr::Comprehension(c) => {
            let parts = [
                &mut c.iter_range,
                &mut c.accu_init,
                &mut c.loop_cond,
                &mut c.loop_step,
                &mut c.result,
            ];
            parts.into_iter().for_each(&mut visit);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(visit),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    visit(&mut entry.key);
                    visit(&mut entry.value);
                }
            }
        }
        Expr::Select(select) => visit(&mut select.operand),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}
