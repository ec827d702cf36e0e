//! Tests of the live view, as it stands on a terminal.

use super::*;
use crate::view::testing::{facts, now, settled};
use crate::view::top::changes::changes;
use crate::view::top::traffic::Traffic;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

fn frame(message: &str) -> Frame {
    let event = |name: &str| {
        serde_json::from_value(json!({
            "metadata": {"namespace": "demo", "name": name},
            "involvedObject": {"kind": "Service", "namespace": "demo", "name": name},
            "type": "Warning", "reason": "BindFailed", "message": message,
            "lastTimestamp": "2030-01-01T00:00:03Z",
        }))
        .expect("an Event")
    };
    let changed = changes(&[event("one"), event("two")]);
    Frame::of(&facts(settled()), &Traffic::default(), changed, None, now())
}

fn seen() -> Screen {
    let mut screen = Screen::default();
    screen.handle(Event::Seen(Box::new(frame("port taken"))));
    screen
}

/// What stands on a terminal of this size, a line each; and the line that is selected.
fn drawn(screen: &Screen, width: u16, height: u16) -> (Vec<String>, Option<String>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|to| screen.draw(to)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
    let lines: Vec<_> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    let is_selected = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
    let selected = (0..height).find(is_selected).map(|y| lines[usize::from(y)].clone());
    (lines, selected)
}

fn press(screen: &mut Screen, keys: &[Key]) -> Course {
    keys.iter().map(|key| screen.handle(Event::Key(*key))).last().expect("a key")
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Character).collect()
}

#[test]
fn before_the_first_read_it_says_so_and_a_failure_keeps_the_last_frame() {
    let mut screen = Screen::default();
    assert_eq!(drawn(&screen, 80, 24).0[0], "bowline top · reading the cluster");
    screen.handle(Event::Seen(Box::new(frame(""))));
    screen.handle(Event::Failed("the cluster does not answer".to_owned()));
    let lines = drawn(&screen, 80, 30).0;
    assert_eq!(lines[0], "bowline top · 2030-01-01T00:00:10Z · the cluster does not answer");
    assert!(lines.iter().any(|line| line.starts_with("local")), "{lines:#?}");
    screen.handle(Event::Seen(Box::new(frame(""))));
    assert_eq!(drawn(&screen, 80, 24).0[0], "bowline top · 2030-01-01T00:00:10Z");
}

#[test]
fn all_tables_stand_on_a_large_terminal_and_only_their_titles_on_a_small_one() {
    let screen = seen();
    let heads = |lines: Vec<String>| {
        lines.iter().filter(|it| it.contains("LISTENS AT") || it.contains("5XX/S")).count()
    };
    assert_eq!(heads(drawn(&screen, 80, 30).0), 2, "those of listeners and pools");
    let small = drawn(&screen, 80, 12).0;
    assert_eq!(heads(small.clone()), 0, "{small:#?}");
    assert!(small.iter().any(|line| line.contains("Changes (2)")), "{small:#?}");
    // Whatever the size, it is drawn.
    for (width, height) in [(1, 1), (3, 2), (20, 5), (500, 200)] {
        drawn(&screen, width, height);
    }
}

#[test]
fn tab_and_arrows_choose_a_row_and_stay_within_the_table() {
    let mut screen = seen();
    assert!(drawn(&screen, 80, 30).1.is_some_and(|row| row.starts_with("local")));
    press(&mut screen, &[Key::Previous]);
    let row = |screen: &Screen| drawn(screen, 80, 30).1.unwrap_or_default();
    assert!(row(&screen).contains("Service demo/one"), "{}", row(&screen));
    press(&mut screen, &[Key::Down, Key::Down, Key::Down]);
    assert!(row(&screen).contains("Service demo/two"), "{}", row(&screen));
    press(&mut screen, &[Key::Up]);
    assert!(row(&screen).contains("Service demo/one"), "{}", row(&screen));
    press(&mut screen, &[Key::End]);
    assert!(row(&screen).contains("Service demo/two"), "{}", row(&screen));
    press(&mut screen, &[Key::Next]);
    assert!(row(&screen).starts_with("local"), "{}", row(&screen));
}

#[test]
fn a_filter_shows_rows_with_its_text_until_it_is_cleared() {
    let mut screen = seen();
    let shown = |screen: &Screen| {
        let lines = drawn(screen, 80, 30).0;
        (
            lines.iter().any(|it| it.contains("demo/one")),
            lines.iter().any(|it| it.contains("demo/two")),
        )
    };
    press(&mut screen, &typed("/demo/TWOq"));
    assert_eq!(shown(&screen), (false, false), "q is a part of the text");
    press(&mut screen, &[Key::Backspace, Key::Enter]);
    assert_eq!(shown(&screen), (false, true));
    assert!(drawn(&screen, 80, 30).0[29].starts_with("/demo/TWO "));
    press(&mut screen, &[Key::Escape]);
    assert_eq!(shown(&screen), (true, true));
}

#[test]
fn q_and_ctrl_c_end_it_and_a_question_mark_helps() {
    assert_eq!(press(&mut seen(), &typed("q")), Course::Ends);
    let mut screen = seen();
    press(&mut screen, &typed("?"));
    let lines = drawn(&screen, 80, 24).0;
    assert!(lines.iter().any(|line| line.contains("next or previous table")), "{lines:#?}");
    assert_eq!(press(&mut screen, &typed("q")), Course::Goes, "any key closes the help");
    assert!(!drawn(&screen, 80, 24).0.iter().any(|line| line.contains("previous table")));
    press(&mut screen, &typed("/x"));
    assert_eq!(press(&mut screen, &[Key::Interrupt]), Course::Ends);
}

#[test]
fn what_others_write_cannot_command_the_terminal() {
    let mut screen = Screen::default();
    screen.handle(Event::Seen(Box::new(frame("\u{1b}[31mX\u{9b}2J\u{202e}"))));
    screen.handle(Event::Failed("\u{1b}]0;owned\u{7}".to_owned()));
    let lines = drawn(&screen, 200, 30).0.concat();
    assert!(lines.contains("\\u{1b}[31mX") && lines.contains("]0;owned"), "{lines}");
    assert_eq!(lines.chars().find(|c| c.is_control() || *c == '\u{202e}'), None);
}

#[test]
fn a_table_with_few_rows_leaves_its_room_to_the_others_even_with_the_focus() {
    assert_eq!(heights(&[1, 6, 2, 4], 0, 38), [20, 8, 4, 6]);
    assert_eq!(heights(&[1, 60, 2, 4], 0, 38), [4, 26, 4, 4]);
    assert_eq!(heights(&[90, 60, 2, 4], 0, 38), [26, 4, 4, 4]);
    assert_eq!(heights(&[1, 6, 2, 4], 3, 30), [4, 8, 4, 14]);
}
