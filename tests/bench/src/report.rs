//! The table.

use std::fmt::Write;

use crate::daemon::Kind;
use crate::meter::{Cost, median, spread};
use crate::rows::{Figure, Reach, Row, Scene};
use crate::scenes::Samples;

/// What stands where there is no figure.
const NONE: &str = "–";

/// What stands where the machine did so much else that nothing can be said.
const BUSY: &str = "busy";

/// The main table: CPU, ratios, and whether ours reaches what it has to.
pub(crate) fn table(rows: &[Row], daemons: &[Kind], samples: &Samples) -> String {
    let mut head = vec!["CPU µs a request".to_owned()];
    head.extend(daemons.iter().map(|kind| kind.name().to_owned()));
    let others: Vec<Kind> = daemons.iter().copied().filter(|&kind| kind != Kind::Ours).collect();
    head.extend(others.iter().map(|kind| format!("ours/{}", kind.name())));
    head.extend(["ours ±", "reach", ""].map(str::to_owned));
    let mut lines = vec![head];
    for row in rows {
        let mut line = vec![row.title.to_owned()];
        line.extend(daemons.iter().map(|&kind| number(value(row, kind, samples))));
        // Memory of stores of different sizes is not to be compared.
        let same = |kind| row.figure != Figure::Mebibytes || samples.domains(kind) == samples.domains(Kind::Ours);
        line.extend(others.iter().map(|&kind| factor(to(row, kind, samples).filter(|_| same(kind)))));
        line.push(deviation(row, samples).map_or_else(|| NONE.to_owned(), |share| format!("{:.0} %", share * 100.0)));
        line.push(reach_text(row.reach));
        let ours = value(row, Kind::Ours, samples);
        // What passes meanwhile is only the daemon's doing where the floor shows that it can be less.
        let busy = row.figure == Figure::Percentile
            && value(row, Kind::Floor, samples).zip(limit(row.reach)).is_some_and(|(floor, most)| floor > most);
        line.push(if busy { BUSY } else { verdict(row.reach, ours, to(row, Kind::Floor, samples)) }.to_owned());
        lines.push(line);
    }
    align(&lines)
}

/// The same requests, as the client saw them.
pub(crate) fn wall_table(rows: &[Row], daemons: &[Kind], samples: &Samples) -> String {
    let mut lines = vec![vec!["wall µs a request (noisy)".to_owned()]];
    lines[0].extend(daemons.iter().map(|kind| kind.name().to_owned()));
    for row in rows.iter().filter(|row| row.figure == Figure::Micros) {
        let mut line = vec![row.title.to_owned()];
        line.extend(daemons.iter().map(|&kind| number(middle(samples.of(kind, row.id), |cost| cost.wall))));
        lines.push(line);
    }
    align(&lines)
}

/// Turn times of our loop, a line for each scene; empty where ours told none.
pub(crate) fn turns_table(turns: &[(Scene, String)]) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (scene, text) in turns {
        let fields: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(':')).collect();
        if lines.is_empty() {
            lines.push(vec!["turn times of ours".to_owned()]);
            lines[0].extend(fields.iter().map(|(name, _)| name.trim().to_owned()));
        }
        let mut line = vec![format!("{scene:?}")];
        line.extend(fields.iter().map(|(_, value)| value.trim().to_owned()));
        lines.push(line);
    }
    align(&lines)
}

/// The figure of one cell.
fn value(row: &Row, kind: Kind, samples: &Samples) -> Option<f64> {
    let cpu = |id| middle(samples.of(kind, id), |cost| cost.cpu);
    match row.figure {
        Figure::Ratio(above, below) => quotient(samples.of(kind, above), samples.of(kind, below)),
        _ => cpu(row.id),
    }
}

fn middle(costs: &[Cost], part: fn(&Cost) -> f64) -> Option<f64> {
    median(costs.iter().map(part))
}

/// Ours over another daemon in this row.
fn to(row: &Row, other: Kind, samples: &Samples) -> Option<f64> {
    match row.figure {
        Figure::Ratio(..) => {
            Some(value(row, Kind::Ours, samples)? / value(row, other, samples).filter(|&other| other > 0.0)?)
        }
        _ => quotient(samples.of(Kind::Ours, row.id), samples.of(other, row.id)),
    }
}

/// One series over another: the median of the quotients where each figure has a neighbour in time, which takes out
/// what the machine does to both; else the quotient of the medians.
fn quotient(above: &[Cost], below: &[Cost]) -> Option<f64> {
    let cpu = |cost: &Cost| cost.cpu;
    if below.iter().any(|cost| cost.cpu <= 0.0) {
        return None;
    }
    if above.len() == below.len() {
        return median(above.iter().zip(below).map(|(above, below)| above.cpu / below.cpu));
    }
    Some(middle(above, cpu)? / middle(below, cpu)?)
}

/// How far apart the runs of ours lie.
fn deviation(row: &Row, samples: &Samples) -> Option<f64> {
    let cpu: Vec<f64> = samples.of(Kind::Ours, row.id).iter().map(|cost| cost.cpu).collect();
    spread(&cpu)
}

fn number(value: Option<f64>) -> String {
    match value {
        None => NONE.to_owned(),
        Some(value) if value == 0.0 || value >= 1000.0 => format!("{value:.0}"),
        Some(value) if value >= 20.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn factor(value: Option<f64>) -> String {
    match value {
        Some(value) if value > 0.0 && value < 0.1 => format!("{value:.4}"),
        Some(value) => format!("{value:.2}"),
        None => NONE.to_owned(),
    }
}

fn reach_text(reach: Reach) -> String {
    match reach {
        Reach::Open => String::new(),
        Reach::AtMost(most) => format!("≤ {most}"),
        Reach::TimesFloor(factor) => format!("≤ {factor} × floor"),
    }
}

/// What ours may have at most, where that is a number of its own.
fn limit(reach: Reach) -> Option<f64> {
    match reach {
        Reach::AtMost(most) => Some(most),
        Reach::Open | Reach::TimesFloor(_) => None,
    }
}

/// Whether ours, which is `to_floor` times the floor, is as good as it has to be.
fn verdict(reach: Reach, ours: Option<f64>, to_floor: Option<f64>) -> &'static str {
    let (figure, most) = match reach {
        Reach::Open => return "",
        Reach::AtMost(most) => (ours, most),
        Reach::TimesFloor(most) => (to_floor, most),
    };
    match figure {
        Some(figure) if figure <= most => "met",
        Some(_) => "MISSED",
        None => NONE,
    }
}

/// Columns of equal width: the first to the left, all others to the right.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width - cell.chars().count());
            let written = match column {
                0 => write!(row, "{cell}{gap}"),
                _ => write!(row, "  {gap}{cell}"),
            };
            written.expect("a String takes everything");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;
    use rstest::rstest;

    fn cost(cpu: f64) -> Cost {
        Cost { cpu, wall: cpu * 2.0 }
    }

    fn row_of(id: &str) -> Row {
        *ROWS.iter().find(|row| row.id == id).unwrap()
    }

    #[rstest]
    #[case::below(Reach::AtMost(9.0), Some(8.9), None, "met")]
    #[case::at(Reach::AtMost(9.0), Some(9.0), None, "met")]
    #[case::above(Reach::AtMost(9.0), Some(9.1), None, "MISSED")]
    #[case::floor(Reach::TimesFloor(1.35), Some(5.3), Some(1.33), "met")]
    #[case::above_floor(Reach::TimesFloor(1.35), Some(5.5), Some(1.38), "MISSED")]
    #[case::no_floor(Reach::TimesFloor(1.35), Some(5.5), None, NONE)]
    #[case::not_ours(Reach::AtMost(9.0), None, Some(1.0), NONE)]
    #[case::open(Reach::Open, Some(5.5), Some(4.0), "")]
    fn a_verdict_needs_both_figures(
        #[case] reach: Reach,
        #[case] ours: Option<f64>,
        #[case] to_floor: Option<f64>,
        #[case] want: &str,
    ) {
        assert_eq!(verdict(reach, ours, to_floor), want);
    }

    #[rstest]
    #[case::quiet(300.0, 900.0, "met")]
    #[case::slow(300.0, 1100.0, "MISSED")]
    #[case::loaded(1100.0, 1200.0, BUSY)]
    fn a_latency_is_not_judged_where_the_floor_is_as_slow(#[case] floor: f64, #[case] ours: f64, #[case] want: &str) {
        let mut samples = Samples::default();
        for (kind, latency) in [(Kind::Ours, ours), (Kind::Floor, floor)] {
            samples.add(kind, "storm-p99", cost(latency));
        }
        let text = table(&[row_of("storm-p99")], &Kind::ALL, &samples);
        assert_eq!(text.split_whitespace().last(), Some(want), "{text}");
    }

    #[test]
    fn missing_daemons_leave_a_dash() {
        let mut samples = Samples::default();
        samples.add(Kind::Ours, "read", cost(5.0));
        samples.add(Kind::Floor, "read", cost(4.0));
        let text = table(&[row_of("read")], &Kind::ALL, &samples);
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells[..8], ["READ", "5.00", "–", "–", "4.00", "–", "–", "1.25"]);
        assert_eq!(cells.last(), Some(&"met"));
    }

    #[test]
    fn memory_is_compared_only_for_stores_of_one_size() {
        let mut samples = Samples::default();
        let row = row_of("quota-memory");
        for kind in [Kind::Ours, Kind::C] {
            samples.add(kind, row.id, cost(50.0));
        }
        let ours_to_c = |samples: &Samples| {
            let text = table(&[row], &[Kind::Ours, Kind::C], samples);
            text.lines().nth(1).unwrap().split_whitespace().nth(6).unwrap().to_owned()
        };
        assert_eq!(ours_to_c(&samples), "1.00");
        samples.set_domains(Kind::C, 300);
        assert_eq!(ours_to_c(&samples), NONE);
    }

    #[test]
    fn neighbours_in_time_are_compared_with_each_other() {
        let ours = [cost(5.0), cost(10.0), cost(5.5)];
        assert_eq!(quotient(&ours, &[cost(4.0), cost(8.0), cost(5.5)]), Some(1.25));
        assert_eq!(quotient(&ours, &[cost(5.0)]), Some(1.1), "medians where they are not of one length");
        assert_eq!(quotient(&ours, &[]), None);
        assert_eq!(quotient(&ours, &[cost(0.0)]), None);
    }

    #[test]
    fn a_ratio_row_divides_two_samples_of_the_same_daemon() {
        let mut samples = Samples::default();
        let row = row_of("flat-read");
        samples.add(Kind::C, crate::rows::EMPTY_READ, cost(10.0));
        assert_eq!(value(&row, Kind::C, &samples), None);
        samples.add(Kind::C, crate::rows::BIG_READ, cost(11.0));
        assert_eq!(value(&row, Kind::C, &samples), Some(1.1));
    }

    #[test]
    fn columns_line_up_by_characters_not_bytes() {
        let lines = [vec!["a µ".to_owned(), "1.00".to_owned()], vec!["b".to_owned(), "–".to_owned()]];
        assert_eq!(align(&lines), "a µ  1.00\nb       –\n");
    }

    #[test]
    fn turn_times_become_a_line_for_each_scene() {
        let turns = [
            (Scene::Small, "count  : 5\nmedian : 1.5 us".to_owned()),
            (Scene::Idle(100), "count  : 12\nmedian : 2.5 us".to_owned()),
        ];
        let want = "turn times of ours  count  median\n\
                    Small                   5  1.5 us\n\
                    Idle(100)              12  2.5 us\n";
        assert_eq!(turns_table(&turns), want);
        assert_eq!(turns_table(&[]), "");
    }

    #[test]
    fn numbers_keep_three_digits_or_so() {
        let cells = [None, Some(0.0), Some(0.291), Some(10.72), Some(582.41), Some(2910.3)].map(number);
        assert_eq!(cells, ["–", "0", "0.29", "10.72", "582.4", "2910"]);
    }
}
