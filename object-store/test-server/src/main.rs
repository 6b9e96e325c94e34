//! Serves folders as buckets until its standard input ends, and fails as that asks for.
//!
//! ```text
//! test-server BUCKET=FOLDER...
//! ```
//!
//! The first line of the output is the endpoint. Then each line of the input is answered with one line:
//!
//! | line | what it does | answer |
//! |---|---|---|
//! | `status 403 AccessDenied` | all requests fail with this status, and with this code if there is one | `ok` |
//! | `ignore-range` | the whole object is sent, whatever range is asked for | `ok` |
//! | `cut 1000` | the connection ends after 1000 bytes of each body | `ok` |
//! | `stall 1000` | nothing is sent after 1000 bytes of each body | `ok` |
//! | `no-version` | no object behind `/plain/` has an ETag or a time | `ok` |
//! | `clear` | nothing fails any more | `ok` |
//! | `stop`, `start` | the server ends at once; it is there again, at its old address | `ok` |
//! | `requests` | | the number of requests so far |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the whole crate is a helper of tests"
)]

use std::io::{BufRead, stdin};

use ringmain_test_server::{Fault, Server};

fn main() {
    let buckets: Vec<_> = std::env::args()
        .skip(1)
        .map(|bucket| {
            let (name, folder) = bucket.split_once('=').expect("BUCKET=FOLDER");
            (name.to_owned(), folder.to_owned())
        })
        .collect();
    let mut server = Server::start(buckets);
    println!("{}", server.endpoint());
    for line in stdin().lock().lines() {
        println!("{}", answer(&mut server, &line.expect("a line")));
    }
}

/// Does what a line asks for, and returns the answer.
fn answer(server: &mut Server, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().expect("a number");
    match words[..] {
        ["status", status, ..] => {
            let status = status.parse().expect("a status");
            // A fault has a code that lives as long as the program.
            let code = words.get(2).map(|code| &*code.to_string().leak());
            // The answer to a HEAD request has no body, and so no code.
            server.set_faults(move |info| {
                let code = code.filter(|_| info.method != "HEAD");
                vec![Fault::Status { status, code, retry_after_s: None }]
            });
        }
        ["ignore-range"] => server.set_faults(|_| vec![Fault::IgnoreRange]),
        ["cut", bytes] => {
            let bytes = number(bytes);
            server.set_faults(move |_| vec![Fault::CutAfter(bytes)]);
        }
        ["stall", bytes] => {
            let bytes = number(bytes);
            server.set_faults(move |_| vec![Fault::StallAfter(bytes)]);
        }
        ["no-version"] => server.set_faults(|_| vec![Fault::NoETag, Fault::NoLastModified]),
        ["clear"] => server.clear_faults(),
        ["stop"] => server.stop(),
        ["start"] => server.start_again(),
        ["requests"] => return server.requests().to_string(),
        _ => panic!("there is no command {line:?}"),
    }
    "ok".to_owned()
}
