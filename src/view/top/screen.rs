//! The live view: which table has the focus, which row is selected, what is filtered; and how that is drawn. Events in,
//! a drawn frame out. Pure: it reads no keys and no clock.

use super::{Frame, Row, Table};
use crate::visible::visible;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Borders, Clear, Paragraph, TableState};
use ratatui::widgets::{Cell, Row as Drawn, Table as Grid};

/// The lines of a table without the focus, with its border and head.
const LEAST_HEIGHT: u16 = 4;
/// The least lines of the table with the focus, for the others to be shown beside it.
const FOCUS_HEIGHT: u16 = 10;
/// How far a page moves.
const PAGE: usize = 10;

const HELP: &str = "\
Tab, ←, →     next or previous table
↑, ↓          select a row; PgUp, PgDn by ten, Home, End
/             show only rows with a text; Esc shows all again
?             this help
q, Ctrl-C     quit

Rates are per second. A dash: the metrics of the agents are not
reached from here (--admin), or there are none. ≥: some are not.";

/// What happens to the view.
#[derive(Debug)]
pub(crate) enum Event {
    /// The cluster was read.
    Seen(Box<Frame>),
    /// The cluster could not be read, for this reason.
    Failed(String),
    /// A key was pressed.
    Key(Key),
}

/// The keys that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Next,
    Previous,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    Character(char),
}

/// Whether the view goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    Goes,
    Ends,
}

/// The state of the view.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    frame: Option<Frame>,
    /// Why the last read failed.
    failure: Option<String>,
    /// The table with the focus.
    focus: usize,
    /// The selected row of each table, among those that the filter lets through.
    selected: [usize; 4],
    filter: String,
    /// Whether the filter is being typed.
    typing: bool,
    helping: bool,
}

impl Screen {
    /// Takes an event.
    pub(crate) fn handle(&mut self, event: Event) -> Course {
        match event {
            Event::Seen(frame) => (self.frame, self.failure) = (Some(*frame), None),
            Event::Failed(why) => self.failure = Some(why),
            Event::Key(key) => return self.press(key),
        }
        Course::Goes
    }

    fn press(&mut self, key: Key) -> Course {
        match key {
            Key::Interrupt => return Course::Ends,
            _ if self.helping => self.helping = false,
            _ if self.typing => self.write(key),
            Key::Character('q') => return Course::Ends,
            Key::Character('?') => self.helping = true,
            Key::Character('/') => self.typing = true,
            Key::Escape => self.filter.clear(),
            Key::Next => self.focus = (self.focus + 1) % self.selected.len(),
            Key::Previous => {
                self.focus = (self.focus + self.selected.len() - 1) % self.selected.len();
            }
            Key::Up => self.select(|row| row.saturating_sub(1)),
            Key::Down => self.select(|row| row + 1),
            Key::PageUp => self.select(|row| row.saturating_sub(PAGE)),
            Key::PageDown => self.select(|row| row + PAGE),
            Key::Home => self.select(|_| 0),
            Key::End => self.select(|_| usize::MAX),
            Key::Enter | Key::Backspace | Key::Character(_) => {}
        }
        Course::Goes
    }

    fn write(&mut self, key: Key) {
        match key {
            Key::Enter => self.typing = false,
            Key::Escape => {
                self.typing = false;
                self.filter.clear();
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Character(c) => self.filter.push(c),
            _ => {}
        }
    }

    fn select(&mut self, to: impl FnOnce(usize) -> usize) {
        let rows = self.tables()[self.focus].rows.len();
        let row = &mut self.selected[self.focus];
        *row = to((*row).min(rows.saturating_sub(1))).min(rows.saturating_sub(1));
    }

    /// The tables with the rows that the filter lets through.
    fn tables(&self) -> [Table; 4] {
        let mut tables = self.frame.as_ref().map(Frame::tables).unwrap_or_default();
        let wanted = self.filter.to_lowercase();
        for table in &mut tables {
            let has = |row: &Row| row.cells.iter().any(|it| it.to_lowercase().contains(&wanted));
            table.rows.retain(has);
        }
        tables
    }

    /// Draws the view.
    pub(crate) fn draw(&self, to: &mut ratatui::Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(to.area());
        to.render_widget(self.head(), head);
        to.render_widget(self.foot(), foot);
        if self.frame.is_some() {
            self.draw_tables(body, to);
        }
        if self.helping {
            help(to);
        }
    }

    fn draw_tables(&self, body: Rect, to: &mut ratatui::Frame<'_>) {
        let tables = self.tables();
        // Where all do not fit, the one with the focus has all the room.
        let fits = body.height >= LEAST_HEIGHT * 3 + FOCUS_HEIGHT;
        let rows: Vec<usize> = tables.iter().map(|it| it.rows.len()).collect();
        let shared = heights(&rows, self.focus, body.height);
        let heights = (0..tables.len()).map(|at| match (at == self.focus, fits) {
            (true, false) => Constraint::Fill(1),
            (_, true) => Constraint::Length(shared[at]),
            (false, false) => Constraint::Length(1),
        });
        let areas = Layout::vertical(heights).split(body);
        for (at, (table, area)) in tables.iter().zip(areas.iter()).enumerate() {
            match at == self.focus || fits {
                true => self.draw_table(at, table, *area, to),
                false => to.render_widget(title(table).style(dim()), *area),
            }
        }
    }

    fn head(&self) -> Paragraph<'static> {
        let mut spans = vec![Span::styled("bowline top", bold())];
        if let Some(frame) = &self.frame {
            let of = frame.namespace.as_ref().map(|it| format!(" · namespace {}", visible(it)));
            spans.push(Span::raw(of.unwrap_or_default()));
            spans.push(Span::raw(format!(" · {}", frame.time)));
        } else if self.failure.is_none() {
            spans.push(Span::raw(" · reading the cluster"));
        }
        if let Some(why) = &self.failure {
            spans.push(Span::styled(format!(" · {}", visible(why)), wrong()));
        }
        Paragraph::new(Line::from(spans))
    }

    fn foot(&self) -> Paragraph<'static> {
        let text = match (self.typing, self.filter.is_empty()) {
            (true, _) => format!("/{}_   Enter: keep, Esc: show all", visible(&self.filter)),
            (false, false) => {
                format!("/{}   Esc: show all, ?: help, q: quit", visible(&self.filter))
            }
            (false, true) => "Tab: next table, ↑↓: select, /: filter, ?: help, q: quit".to_owned(),
        };
        Paragraph::new(text).style(dim())
    }

    fn draw_table(&self, at: usize, table: &Table, area: Rect, to: &mut ratatui::Frame<'_>) {
        let focused = at == self.focus;
        let block = Block::new()
            .borders(Borders::TOP)
            .border_type(if focused { BorderType::Thick } else { BorderType::Plain })
            .title(title(table).style(if focused { bold() } else { dim() }));
        let widths = widths(table, area.width);
        let rows = table.rows.iter().map(|row| {
            let cells = row.cells.iter().map(|cell| Cell::from(visible(cell).into_owned()));
            Drawn::new(cells).style(if row.wrong { wrong() } else { Style::new() })
        });
        let head = Drawn::new(table.head.iter().copied()).style(dim());
        let grid = Grid::new(rows, widths)
            .header(head)
            .column_spacing(2)
            .block(block)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let selected = self.selected[at].min(table.rows.len().saturating_sub(1));
        let chosen = (focused && !table.rows.is_empty()).then_some(selected);
        to.render_stateful_widget(grid, area, &mut TableState::new().with_selected(chosen));
    }
}

/// The title of a table, with the number of its rows.
fn title(table: &Table) -> Line<'static> {
    Line::from(format!(" {} ({}) ", table.title, table.rows.len()))
}

/// The lines of tables with these numbers of rows: what each needs, the one with the focus first, and the rest to that one.
fn heights(rows: &[usize], focus: usize, room: u16) -> Vec<u16> {
    let mut all = vec![LEAST_HEIGHT; rows.len()];
    let least = LEAST_HEIGHT.saturating_mul(u16::try_from(rows.len()).unwrap_or(u16::MAX));
    let mut left = room.saturating_sub(least);
    let others = (0..rows.len()).filter(|at| *at != focus);
    for at in std::iter::once(focus).chain(others) {
        // Its border and its head are two lines.
        let wants = u16::try_from(rows[at].saturating_add(2)).unwrap_or(u16::MAX);
        let more = wants.saturating_sub(LEAST_HEIGHT).min(left);
        all[at] += more;
        left -= more;
    }
    all[focus] += left;
    all
}

/// Columns as wide as their widest cell; if they do not fit, the widest shrink.
fn widths(table: &Table, room: u16) -> Vec<Constraint> {
    let width = |at: usize| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(at));
        let cells = cells.map(|cell| visible(cell).chars().count());
        cells.chain([table.head[at].chars().count()]).max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let room = usize::from(room).saturating_sub(2 * widths.len().saturating_sub(1));
    while widths.iter().sum::<usize>() > room
        && let Some(widest) = widths.iter_mut().max().filter(|width| **width > 1)
    {
        *widest -= 1;
    }
    widths.into_iter().map(|it| Constraint::Length(u16::try_from(it).unwrap_or(u16::MAX))).collect()
}

fn help(to: &mut ratatui::Frame<'_>) {
    let lines = HELP.lines().count();
    let width = HELP.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    let size = |it: usize| u16::try_from(it).unwrap_or(u16::MAX).saturating_add(4);
    let area =
        to.area().centered(Constraint::Length(size(width)), Constraint::Length(size(lines) - 2));
    let block = Block::bordered().title(" Keys ");
    to.render_widget(Clear, area);
    to.render_widget(Paragraph::new(HELP).block(block), area);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn wrong() -> Style {
    Style::new().fg(Color::Red)
}

#[cfg(test)]
mod tests;
