//! The live screen of `rmctl top`. The reaction to keys is pure; the driver around it polls, draws
//! and kills.

use std::cmp::Reverse;
use std::time::Duration;

use headroom_client::Client;
use headroom_types::ContainerId;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

use super::container_chart::{CHART, container_chart};
use super::container_usage::fetch_usage;
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::top::{ContainerUsageRow, HEADERS, cells, share, spark, warning};
use crate::render::{TextPainter, containers, count};
use crate::select::RowSelection;

/// Polling interval.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait for a key before the thread checks whether the screen still exists.
const KEY: Duration = Duration::from_millis(100);
const ADVICE: &str = "q quit  ↑↓ choose  s sort  k kill  enter diagnose";

/// Sort order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopSortOrder {
    Share,
    Used,
    Rate,
    Name,
}

impl TopSortOrder {
    fn next(self) -> TopSortOrder {
        match self {
            TopSortOrder::Share => TopSortOrder::Used,
            TopSortOrder::Used => TopSortOrder::Rate,
            TopSortOrder::Rate => TopSortOrder::Name,
            TopSortOrder::Name => TopSortOrder::Share,
        }
    }
    fn as_str(self) -> &'static str {
        match self {
            TopSortOrder::Share => "part of the limit",
            TopSortOrder::Used => "memory",
            TopSortOrder::Rate => "growth",
            TopSortOrder::Name => "name",
        }
    }
}

/// The present view.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TopScreenView {
    /// The list.
    List,
    /// The list with the question whether to kill this container.
    Kill(ContainerId),
    /// A text about one container.
    About(String),
}

/// Action of the driver after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TopScreenAction {
    Nothing,
    Quit,
    Kill(ContainerId),
    Explain(ContainerId),
}

/// State of the screen.
#[derive(Clone, Debug)]
struct TopScreenState {
    rows: Vec<ContainerUsageRow>,
    chosen: usize,
    order: TopSortOrder,
    shown: TopScreenView,
    said: String,
}

impl TopScreenState {
    fn new() -> Self {
        TopScreenState {
            rows: Vec::new(),
            chosen: 0,
            order: TopSortOrder::Share,
            shown: TopScreenView::List,
            said: "looking …".to_owned(),
        }
    }

    /// Replaces the rows. The selection stays on the same container.
    fn take(&mut self, rows: Vec<ContainerUsageRow>) {
        let kept = self.chosen().map(|u| u.container.clone());
        self.rows = rows;
        self.sort();
        let at = kept.and_then(|id| self.rows.iter().position(|u| u.container == id));
        self.chosen = at
            .unwrap_or(self.chosen)
            .min(self.rows.len().saturating_sub(1));
    }

    fn sort(&mut self) {
        match self.order {
            TopSortOrder::Share => self
                .rows
                .sort_by_key(|u| (Reverse(share(u)), u.container.clone())),
            TopSortOrder::Used => self
                .rows
                .sort_by_key(|u| (Reverse(u.used), u.container.clone())),
            TopSortOrder::Rate => self
                .rows
                .sort_by_key(|u| (Reverse(u.rate), u.container.clone())),
            TopSortOrder::Name => self.rows.sort_by_key(|u| u.container.clone()),
        }
    }

    fn chosen(&self) -> Option<&ContainerUsageRow> {
        self.rows.get(self.chosen)
    }

    /// Handles a key.
    fn key(&mut self, key: KeyEvent) -> TopScreenAction {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return TopScreenAction::Quit;
        }
        match self.shown.clone() {
            TopScreenView::About(_) => {
                self.shown = TopScreenView::List;
                TopScreenAction::Nothing
            }
            // Only this key kills; every other key cancels.
            TopScreenView::Kill(id) => {
                self.shown = TopScreenView::List;
                if key.code == KeyCode::Char('y') {
                    TopScreenAction::Kill(id)
                } else {
                    self.say("nothing was killed")
                }
            }
            TopScreenView::List => self.in_list(key.code),
        }
    }

    fn say(&mut self, text: &str) -> TopScreenAction {
        text.clone_into(&mut self.said);
        TopScreenAction::Nothing
    }

    #[allow(clippy::wildcard_enum_match_arm)] // other keys have no function
    fn in_list(&mut self, code: KeyCode) -> TopScreenAction {
        let last = self.rows.len().saturating_sub(1);
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return TopScreenAction::Quit,
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.sort();
                self.chosen = 0;
            }
            KeyCode::Char('k') => {
                if let Some(u) = self.chosen() {
                    self.shown = TopScreenView::Kill(u.container.clone());
                }
            }
            KeyCode::Enter => {
                return self.chosen().map_or(TopScreenAction::Nothing, |u| {
                    TopScreenAction::Explain(u.container.clone())
                });
            }
            _ => {}
        }
        TopScreenAction::Nothing
    }

    fn draw(&self, frame: &mut Frame<'_>, colour: bool) {
        let [head, body, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let running = count(
            u64::try_from(self.rows.len()).unwrap_or(u64::MAX),
            "container",
        );
        let title = format!(
            "rmctl top · {running} · by {} · {}",
            self.order.as_str(),
            self.said
        );
        frame.render_widget(Paragraph::new(title), head);
        if let TopScreenView::About(text) = &self.shown {
            frame.render_widget(
                Paragraph::new(text.lines().map(Line::raw).collect::<Vec<_>>()),
                body,
            );
            frame.render_widget(Paragraph::new("any key: back"), foot);
            return;
        }
        let mut state = TableState::default().with_selected(Some(self.chosen));
        frame.render_stateful_widget(self.table(colour), body, &mut state);
        let question = match &self.shown {
            TopScreenView::Kill(id) => format!("kill {id}? y kills, any other key does not"),
            TopScreenView::List | TopScreenView::About(_) => ADVICE.to_owned(),
        };
        frame.render_widget(Paragraph::new(question), foot);
    }

    fn table(&self, colour: bool) -> Table<'static> {
        let titles = HEADERS
            .map(|h| h.trim_start_matches('>'))
            .into_iter()
            .chain(["MEMORY 60 s"]);
        let header = Row::new(titles.map(Cell::from).collect::<Vec<_>>());
        let row = |u: &ContainerUsageRow| {
            let picture = format!("{} {}", spark(u), warning(u).unwrap_or_default());
            let style = if colour && u.limit_in_s.is_some() {
                Style::new().yellow()
            } else {
                Style::new()
            };
            Row::new(
                cells(u)
                    .into_iter()
                    .chain([picture])
                    .map(Cell::from)
                    .collect::<Vec<_>>(),
            )
            .style(style)
        };
        let id = self
            .rows
            .iter()
            .map(|u| u.container.to_string().chars().count())
            .max()
            .unwrap_or(10);
        let fixed = [u16::try_from(id).unwrap_or(40), 10, 6, 6, 6, 6, 6, 5].map(Constraint::Length);
        let widths = fixed.into_iter().chain([Constraint::Fill(1)]);
        let chosen = Style::new().add_modifier(Modifier::REVERSED);
        Table::new(self.rows.iter().map(row).collect::<Vec<_>>(), widths)
            .header(header)
            .row_highlight_style(chosen)
    }
}

/// Runs until the user quits. The terminal is restored afterwards, also after a failure.
pub(super) async fn run(
    context: &CommandContext,
    client: &Client,
    path: &str,
    wanted: &RowSelection,
) -> CommandResult {
    let broken = |e: std::io::Error| {
        CommandFailure::failed(format!("the terminal cannot be used: {e}")).help("rmctl top --once")
    };
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let ended = live(context, client, path, wanted, &mut terminal).await;
    ratatui::restore();
    ended
}

async fn live(
    context: &CommandContext,
    client: &Client,
    path: &str,
    wanted: &RowSelection,
    terminal: &mut DefaultTerminal,
) -> CommandResult {
    let mut screen = TopScreenState::new();
    let mut keys = keys();
    let mut looks = tokio::time::interval(LOOK);
    let colour = context.term.paint.is_colour();
    loop {
        let drawn = terminal
            .draw(|frame| screen.draw(frame, colour))
            .map(|_| ());
        drawn.map_err(|e| CommandFailure::failed(format!("the terminal cannot be used: {e}")))?;
        tokio::select! {
            _ = looks.tick() => match fetch_usage(client, path, wanted).await {
                Ok(rows) => {
                    screen.take(rows);
                    screen.said = "measured by the nodes".to_owned();
                }
                // The old rows stay on the screen with an error message.
                Err(e) => screen.said = format!("! {e}"),
            },
            key = keys.recv() => match key.map_or(TopScreenAction::Quit, |key| screen.key(key)) {
                TopScreenAction::Nothing => {}
                TopScreenAction::Quit => return Ok(CommandExitCode::Ok),
                TopScreenAction::Kill(id) => screen.said = kill(client, &id).await,
                TopScreenAction::Explain(id) => screen.shown = TopScreenView::About(about(client, &id).await),
            },
        }
    }
}

async fn kill(client: &Client, id: &ContainerId) -> String {
    client.stop(id).await.map_or_else(
        |e| format!("! {e}"),
        |after| format!("{id} is {}", after.state),
    )
}

/// Description of a container: its fields and its memory chart.
async fn about(client: &Client, id: &ContainerId) -> String {
    let paint = TextPainter::new(false);
    let view = match client.container(id).await {
        Ok(view) => view,
        Err(e) => return e.to_string(),
    };
    let mut text = containers::one(&view, now(), paint);
    match client.timeline(id).await {
        Ok(timeline) => text.push_str(&container_chart(&timeline, view.peak, CHART, paint)),
        Err(e) => text.push_str(&format!("no timeline: {e}\n")),
    }
    text
}

/// Pressed keys, from a thread that ends when the receiver is dropped.
fn keys() -> mpsc::Receiver<KeyEvent> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::task::spawn_blocking(move || {
        while !sender.is_closed() {
            match event::poll(KEY) {
                Ok(false) => {}
                Ok(true) => match event::read() {
                    Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        if sender.blocking_send(key).is_err() {
                            return;
                        }
                    }
                    Ok(_) => {}
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_types::Bytes;
    use headroom_types::exit::MemorySample;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn usage(at: usize, mib: u64, grows: u64) -> ContainerUsageRow {
        let sample = |i: u64| {
            let current = Bytes::from_mib(mib + i * grows);
            MemorySample {
                at_ms: i * 250,
                current,
                anon: Some(current),
                file: None,
                heap: None,
                limit: None,
                mark: None,
            }
        };
        let samples: Vec<MemorySample> = (0..80).map(sample).collect();
        ContainerUsageRow::of(&fixture::containers()[at], &samples)
    }

    fn screen() -> TopScreenState {
        let mut screen = TopScreenState::new();
        screen.take(vec![usage(0, 50, 0), usage(1, 3000, 30), usage(2, 1000, 0)]);
        screen.said = "measured by the nodes".into();
        screen
    }

    fn press(screen: &mut TopScreenState, code: KeyCode) -> TopScreenAction {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_screen() {
        let mut terminal = Terminal::new(TestBackend::new(104, 7)).expect("a terminal");
        let mut screen = screen();
        terminal
            .draw(|frame| screen.draw(frame, false))
            .expect("draws");
        insta::assert_snapshot!("top_screen", terminal.backend());
        press(&mut screen, KeyCode::Char('k'));
        terminal
            .draw(|frame| screen.draw(frame, false))
            .expect("draws");
        insta::assert_snapshot!("top_screen_kill", terminal.backend());
    }

    #[test]
    fn a_kill_needs_a_confirmation() {
        let mut screen = screen();
        let first = screen.rows[0].container.clone();
        assert_eq!(
            press(&mut screen, KeyCode::Char('k')),
            TopScreenAction::Nothing
        );
        assert_eq!(
            press(&mut screen, KeyCode::Enter),
            TopScreenAction::Nothing,
            "a no"
        );
        assert_eq!(screen.shown, TopScreenView::List);
        press(&mut screen, KeyCode::Char('k'));
        assert_eq!(
            press(&mut screen, KeyCode::Char('y')),
            TopScreenAction::Kill(first)
        );
    }

    #[test]
    fn the_selected_row_stays_selected() {
        let mut screen = screen();
        press(&mut screen, KeyCode::Down);
        let chosen = screen.chosen().expect("one").container.clone();
        screen.take(vec![usage(2, 4000, 0), usage(0, 90, 0), usage(1, 10, 0)]);
        assert_eq!(
            screen.chosen().map(|u| u.container.clone()),
            Some(chosen.clone())
        );
        assert_eq!(
            press(&mut screen, KeyCode::Enter),
            TopScreenAction::Explain(chosen)
        );
        screen.take(Vec::new());
        assert_eq!(
            (
                press(&mut screen, KeyCode::Enter),
                press(&mut screen, KeyCode::Char('k'))
            ),
            (TopScreenAction::Nothing, TopScreenAction::Nothing)
        );
        assert_eq!(
            screen.shown,
            TopScreenView::List,
            "there is nothing to kill"
        );
    }

    #[test]
    fn sort_orders_cycle_and_keys_quit() {
        let mut screen = screen();
        let orders: Vec<TopSortOrder> = (0..4)
            .map(|_| {
                press(&mut screen, KeyCode::Char('s'));
                screen.order
            })
            .collect();
        assert_eq!(
            orders,
            [
                TopSortOrder::Used,
                TopSortOrder::Rate,
                TopSortOrder::Name,
                TopSortOrder::Share
            ]
        );
        assert_eq!(
            press(&mut screen, KeyCode::Char('q')),
            TopScreenAction::Quit
        );
        screen.shown = TopScreenView::About("x".into());
        assert_eq!(
            press(&mut screen, KeyCode::Char('q')),
            TopScreenAction::Nothing,
            "the first key returns to the list"
        );
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.key(stop), TopScreenAction::Quit);
    }
}
