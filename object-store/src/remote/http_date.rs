//! Dates in headers of HTTP.

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The moment of a date in the form that servers must send: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
pub(super) fn http_date(text: &str) -> Option<SystemTime> {
    let (_, text) = text.trim().split_once(", ")?;
    let words: Vec<&str> = text.split(' ').collect();
    let [day, month, year, time, "GMT"] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? as u64;
    let (day, year) = (number(day, 1..=31)?, number(year, 1970..=9999)?);
    let times: Vec<&str> = time.split(':').collect();
    let [hours, minutes, seconds] = times[..] else { return None };
    let (hours, minutes) = (number(hours, 0..=23)?, number(minutes, 0..=59)?);
    // A leap second has the number 60.
    let seconds = number(seconds, 0..=60)?;
    let days = days_before(year, month) + day - 1;
    let since = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))
}

fn number(text: &str, allowed: std::ops::RangeInclusive<u64>) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && allowed.contains(number))
}

/// The days from the beginning of 1970 to a month, counted from 0, of a year.
fn days_before(year: u64, month: u64) -> u64 {
    // Years begin in March, so that the leap day is the last one.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let leap_days = year / 4 - year / 100 + year / 400;
    // From March on, five months have 153 days. 719,468 days lie between the first March 1st and 1970.
    year * 365 + leap_days + (153 * month + 2) / 5 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        Some(http_date(text)?.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn dates_are_moments() {
        for (text, expected) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
            ("Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
            ("Fri, 31 Dec 2100 00:00:00 GMT", 4_133_894_400),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "soon",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Now 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }
}
