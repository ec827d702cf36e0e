//! The text of `bowline doctor`: a line for each check, and what helps below those that found something. Pure.

use super::doctor::{Checked, Diagnosis, State};
use super::status_text::notes;
use super::words::bullet;

/// All checks.
pub(super) fn diagnosis(diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    for Checked { check, state, message, remedy } in &diagnosis.checks {
        let word = match state {
            State::Ok => "ok",
            State::Wrong => "WRONG",
            State::Unknown => "?",
        };
        bullet(&mut out, &format!("{word:<7}{:<11}", format!("{check:?}")), message);
        if let Some(remedy) = remedy {
            bullet(&mut out, &format!("{:<18}What helps: ", ""), remedy);
        }
    }
    notes(&mut out, &diagnosis.notes);
    let wrong = diagnosis.checks.iter().filter(|it| it.state == State::Wrong).count();
    out.push_str(&match wrong {
        0 => "\nNothing is wrong.\n".to_owned(),
        1 => "\n1 thing is wrong.\n".to_owned(),
        many => format!("\n{many} things are wrong.\n"),
    });
    out
}
