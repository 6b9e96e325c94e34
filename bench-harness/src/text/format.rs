//! Numbers with units, three digits each, for tables and pictures.

pub(crate) use crate::text::size::format_bytes_short as bytes;

/// Formats three digits: `1.23`, `12.3`, `123`.
fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Formats a value in the largest unit that it reaches; each unit has a factor to the one before it.
fn in_unit(value: f64, units: &[(&str, f64)]) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let mut scaled = value;
    let mut unit = "";
    for (index, (name, worth)) in units.iter().enumerate() {
        // 999.6 would be shown as 1000 of the smaller unit.
        if index > 0 && scaled < worth * 0.9995 {
            break;
        }
        scaled /= worth;
        unit = name;
    }
    match (scaled == 0.0, unit) {
        (true, unit) => format!("0 {unit}"),
        (false, unit) => format!("{} {unit}", three_digits(scaled)),
    }
}

/// Formats bytes a second: `3.41 GB/s`. Decimal, as for devices and fio.
pub(crate) fn rate(bytes_per_s: f64) -> String {
    let units = [("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e3), ("GB/s", 1e3), ("TB/s", 1e3)];
    in_unit(bytes_per_s, &units)
}

/// Formats nanoseconds: `842 ns`, `12.3 µs`, `1.20 ms`, `3.40 s`.
pub(crate) fn nanoseconds(ns: f64) -> String {
    if ns < 999.5 {
        return format!("{ns:.0} ns");
    }
    in_unit(ns, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e3), ("s", 1e3)])
}

/// Formats seconds: `0.25 s` as `250 ms`.
pub(crate) fn seconds(seconds: f64) -> String {
    nanoseconds(seconds * 1e9)
}

/// Formats a share of one: `87 %`, or `0.4 %` for small shares.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if !percent.is_finite() => "–".into(),
        percent if percent > 0.0 && percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Formats a number with its noun: `1 cell`, `3 cells`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats a number with narrow spaces between thousands: `12 345`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202F}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_where_the_digits_do() {
        assert_eq!(rate(0.0), "0 B/s");
        assert_eq!(rate(5_412_000_000.0), "5.41 GB/s");
        assert_eq!(rate(999_400_000.0), "999 MB/s");
        assert_eq!(rate(999_600_000.0), "1.00 GB/s");
        assert_eq!(rate(12_340.0), "12.3 kB/s");
        assert_eq!(rate(f64::NAN), "–");
        assert_eq!(nanoseconds(0.0), "0 ns");
        assert_eq!(nanoseconds(842.0), "842 ns");
        assert_eq!(nanoseconds(999.6), "1.00 µs");
        assert_eq!(nanoseconds(12_345.0), "12.3 µs");
        assert_eq!(nanoseconds(3.4e9), "3.40 s");
        assert_eq!(seconds(0.25), "250 ms");
        assert_eq!(seconds(120.0), "120 s");
    }

    #[test]
    fn shares_and_counts() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.874), "87 %");
        assert_eq!(percent(0.004), "0.4 %");
        assert_eq!(percent(f64::INFINITY), "–");
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1\u{202F}234\u{202F}567");
    }
}
