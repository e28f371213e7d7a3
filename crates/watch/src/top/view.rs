//! Drawing. Whatever has no room is left out.

use lasthop_control::grid::{Grid, printable};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table, TableState};

use super::app::{App, List};
use super::tables;
use crate::history::Ring;
use crate::sample::Sample;

/// The list always has room for so many lines, of which one is its head.
const LIST_MIN: u16 = 4;
/// From this height on there are plots.
const PLOTS_FROM: u16 = 20;
const PLOTS_HEIGHT: u16 = 3;
/// Associations, bases and counters have this much together at most, of ten lines.
const TABLES_TENTHS: u16 = 5;
const HELP: [&str; 10] = [
    "up, down, PgUp, PgDn, Home, End   select",
    "tab                               connections or programs",
    "+, -                              a higher or lower priority of what is selected",
    "0                                 the priority that the configuration says",
    "s                                 sort by rate, total, priority, name, age",
    "?                                 this",
    "q                                 quit",
    "",
    "Rates are of the last interval: DOWN towards the mobile, UP from it.",
    "Shares of the hop are in proportion to priorities.",
];

const QUIET: Style = Style::new().fg(Color::DarkGray);
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, process: &str) {
    let area = frame.area();
    let [top, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(area);
    match &app.sample {
        Some(sample) => {
            text(frame, top, &format!("lasthop {}   {process}", tables::title(sample)), HEAD);
            draw_sample(frame, body, app, sample);
        }
        None => text(frame, top, &format!("lasthop: asking {process}"), HEAD),
    }
    let keys = "q quit  ? help  tab list  s sort  +/- priority";
    match &app.message {
        Some(message) => text(frame, foot, message, Style::new().fg(Color::Yellow)),
        None => text(frame, foot, keys, QUIET),
    }
    if app.help {
        draw_help(frame, area);
    }
}

fn draw_sample(frame: &mut Frame<'_>, area: Rect, app: &App, sample: &Sample) {
    let mut rest = area;
    text(frame, take(&mut rest, 1), &tables::total(sample), Style::new());
    if let Some(packets) = tables::packets(sample).filter(|_| rest.height > LIST_MIN) {
        text(frame, take(&mut rest, 1), &packets, Style::new());
    }
    if area.height >= PLOTS_FROM {
        draw_plots(frame, take(&mut rest, PLOTS_HEIGHT + 1), app, sample);
    }
    let for_tables = area.height.saturating_mul(TABLES_TENTHS) / 10;
    let mut room = for_tables.min(rest.height.saturating_sub(LIST_MIN));
    let mut grids = vec![tables::associations(sample), tables::paths(sample, Some(&app.history))];
    if let Some(agent) = &sample.agent {
        grids.extend([tables::interfaces(agent), tables::counters(agent)]);
    }
    if sample.bases.len() > 1 {
        grids.push(tables::bases(sample));
    }
    for grid in grids.iter().filter(|grid| grid.rows() > 0) {
        let wanted = u16::try_from(grid.rows()).unwrap_or(u16::MAX).saturating_add(2);
        let height = wanted.min(room);
        if height < 2 {
            break;
        }
        room -= height;
        draw_grid(frame, take(&mut rest, height), grid, None);
    }
    if let Some(handoffs) = tables::handoffs(sample).filter(|_| rest.height > LIST_MIN) {
        text(frame, take(&mut rest, 2), &handoffs, Style::new());
    }
    draw_list(frame, rest, app, sample);
}

fn draw_list(frame: &mut Frame<'_>, mut area: Rect, app: &App, sample: &Sample) {
    let order = app.order();
    let selected = app.selected(&order);
    let (name, grid) = match app.list {
        List::Connections => {
            ("connections", tables::connections(sample, &order, Some(&app.history)))
        }
        List::Programs => ("programs", tables::programs(sample, &order, Some(&app.history))),
    };
    let at = selected.map_or(0, |at| at + 1);
    let head = format!("{name}: {at}/{}, by {}", order.len(), app.sort.name());
    if area.height >= LIST_MIN {
        text(frame, take(&mut area, 1), &head, HEAD);
    }
    draw_grid(frame, area, &grid, selected);
}

fn draw_grid(frame: &mut Frame<'_>, area: Rect, grid: &Grid, selected: Option<usize>) {
    let shown = grid.fit(usize::from(area.width));
    let widths =
        shown.iter().map(|s| Constraint::Length(u16::try_from(s.width).unwrap_or(u16::MAX)));
    // Only what can be seen is made: there may be thousands of rows.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(height));
    let rows = (first..grid.rows()).take(height);
    let rows = rows.map(|row| Row::new(grid.cells(row, &shown)));
    let table = Table::new(rows, widths)
        .header(Row::new(grid.titles(&shown)).style(QUIET))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(selected.map(|at| at - first));
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_plots(frame: &mut Frame<'_>, area: Rect, app: &App, sample: &Sample) {
    let plots = app.history.plots();
    let (down, up) = match sample.role.as_str() {
        "mobile" => (&plots.from_hop, &plots.to_hop),
        _ => (&plots.to_hop, &plots.from_hop),
    };
    let mut shown = vec![("down", down, Color::Blue), ("up", up, Color::Green)];
    if sample.agent.is_none() {
        shown
            .extend([("loss", &plots.loss, Color::Red), ("queue", &plots.queue_ms, Color::Yellow)]);
    }
    let columns = Layout::horizontal(vec![Constraint::Fill(1); shown.len()]).spacing(2);
    for ((name, ring, colour), area) in shown.into_iter().zip(columns.split(area).iter()) {
        let mut area = *area;
        text(frame, take(&mut area, 1), name, QUIET);
        let plot = Sparkline::default()
            .data(newest(ring, area.width))
            .max(highest(ring).max(1))
            .style(Style::new().fg(colour));
        frame.render_widget(plot, area);
    }
}

/// The newest `width` values, in thousandths so that shares have steps, at the right.
fn newest(ring: &Ring, width: u16) -> Vec<u64> {
    let width = usize::from(width);
    let known = ring.iter().len().min(width);
    let values = ring.iter().skip(ring.iter().len() - known).map(thousandths);
    std::iter::repeat_n(0, width - known).chain(values).collect()
}

fn highest(ring: &Ring) -> u64 {
    ring.iter().map(thousandths).max().unwrap_or(0)
}

fn thousandths(value: f32) -> u64 {
    if value.is_finite() { (f64::from(value) * 1e3) as u64 } else { 0 }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let width = HELP.iter().map(|line| line.len()).max().unwrap_or(0);
    let (width, height) = (clamped(width + 4, area.width), clamped(HELP.len() + 2, area.height));
    let window = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Clear, window);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" lasthop top ")),
        window,
    );
}

fn clamped(wanted: usize, most: u16) -> u16 {
    u16::try_from(wanted).unwrap_or(most).min(most)
}

/// Cuts `height` lines, or what there is, off the top.
fn take(area: &mut Rect, height: u16) -> Rect {
    let height = height.min(area.height);
    let taken = Rect { height, ..*area };
    area.y += height;
    area.height -= height;
    taken
}

fn text(frame: &mut Frame<'_>, area: Rect, text: &str, style: Style) {
    frame.render_widget(
        Paragraph::new(printable(text)).style(style),
        Rect { height: area.height.min(1), ..area },
    );
}
