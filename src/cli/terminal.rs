//! The terminal of a live view: its own screen while it lasts, and as it was before when it ends, however it ends. `top` draws
//! on it.

use crate::view::top::screen::Key;
use anyhow::Context as _;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{IsTerminal as _, Stdout, stdin, stdout};
use tokio::sync::mpsc;

/// Whether a person sees the output and has the keys.
pub(super) fn is_one() -> bool {
    stdout().is_terminal() && stdin().is_terminal()
}

/// The terminal, until it is dropped.
pub(super) struct Terminal(ratatui::Terminal<CrosstermBackend<Stdout>>);

impl Terminal {
    /// Takes the terminal.
    pub(super) fn begin() -> anyhow::Result<Self> {
        const FAILED: &str = "cannot use the terminal; --once needs none";
        let terminal = ratatui::Terminal::new(CrosstermBackend::new(stdout())).context(FAILED)?;
        enable_raw_mode().context(FAILED)?;
        // From here on it is given back when this is dropped.
        let terminal = Self(terminal);
        execute!(stdout(), EnterAlternateScreen, Hide).context(FAILED)?;
        Ok(terminal)
    }

    pub(super) fn draw(
        &mut self,
        draw: impl FnOnce(&mut ratatui::Frame<'_>),
    ) -> anyhow::Result<()> {
        self.0.draw(draw).context("cannot draw on the terminal")?;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// The keys that are pressed; None where only the size of the terminal changed. It ends with the terminal.
pub(super) fn keys() -> mpsc::UnboundedReceiver<Option<Key>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // A read cannot be broken off: the thread ends with the process.
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let sent = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => match meant(key) {
                    Some(key) => sender.send(Some(key)),
                    None => continue,
                },
                Event::Resize(..) => sender.send(None),
                _ => continue,
            };
            if sent.is_err() {
                return;
            }
        }
    });
    receiver
}

/// What a key means to the view. None: nothing.
fn meant(key: KeyEvent) -> Option<Key> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Key::Interrupt,
        KeyCode::Char(_) if control || key.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(c) => Key::Character(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab | KeyCode::Right => Key::Next,
        KeyCode::BackTab | KeyCode::Left => Key::Previous,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_with_control_is_no_letter() {
        let key = |code, modifiers| meant(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Character('q')));
        assert_eq!(key(KeyCode::Char('Q'), KeyModifiers::SHIFT), Some(Key::Character('Q')));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Interrupt));
    }
}
