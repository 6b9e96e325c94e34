//! The conformance suite of backends, over objects on a real server.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, RetryConfig};
use ringmain_backends::conformance::{self, Subject};
use ringmain_backends::{BackendOptions, ReadBackend, Result};
use ringmain_object_store::remote::{ObjectStoreBackend, RemoteOptions};
use ringmain_test_server::{KEY_ID, SECRET_KEY, Server};

/// The suite counts descriptors some time after the last request. By then, idle
/// connections must be closed, or they would look like leaked descriptors.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// In a process that serves: set.
const SERVE: &str = "RINGMAIN_TEST_SERVE";
/// The name of the bucket that has all files of the machine.
const BUCKET: &str = "machine";

/// A server in a process of its own: the suite counts descriptors and threads, and forks.
struct ServerProcess {
    endpoint: String,
    /// The server ends when the pipe to it does, and reports to a pipe that must still be there.
    _child: Child,
    _output: BufReader<ChildStdout>,
}

fn server() -> &'static ServerProcess {
    static SERVER: OnceLock<ServerProcess> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
            .args(["serve_in_a_process_of_its_own", "--exact", "--nocapture", "--test-threads=1"])
            .env(SERVE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        while !line.contains("endpoint=") {
            line.clear();
            assert_ne!(output.read_line(&mut line).expect("its output"), 0, "it has ended");
        }
        let (_, endpoint) = line.trim().split_once("endpoint=").expect("the endpoint");
        ServerProcess { endpoint: endpoint.to_owned(), _child: child, _output: output }
    })
}

/// Serves until the process that has started this one ends. Without the variable it is not a test.
#[test]
fn serve_in_a_process_of_its_own() {
    if std::env::var_os(SERVE).is_some() {
        let server = Server::start([(BUCKET, "/")]);
        let mut output = std::io::stdout();
        writeln!(output, "endpoint={}", server.endpoint()).expect("the output");
        output.flush().expect("the output");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }
}

/// The paths of files are their keys.
fn over_s3(options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    let endpoint = &server().endpoint;
    let mut remote = RemoteOptions {
        // A request may have a connection, which is a descriptor.
        requests_max: options.depth_max.min(options.open_files_max),
        part_bytes: options.chunk_bytes,
        ..RemoteOptions::default()
    };
    // On a busy machine it takes long until a connection is idle.
    remote.retry.shortage = Duration::from_secs(240);
    let make = move || {
        let client = AmazonS3Builder::new()
            .with_client_options(ClientOptions::new().with_pool_idle_timeout(IDLE_TIMEOUT))
            .with_endpoint(endpoint)
            .with_allow_http(true)
            .with_bucket_name(BUCKET)
            .with_access_key_id(KEY_ID)
            .with_secret_access_key(SECRET_KEY)
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .build()?;
        Ok(Arc::new(client) as _)
    };
    Ok(Arc::new(ObjectStoreBackend::new(remote, make)?))
}

const WHOLE_OBJECTS: &str =
    "an object is written as a whole: the handle of an older one is `Replaced`";
const NO_LOCAL_FAULTS: &str =
    "these faults are those of system calls; tests/faults.rs has those of a network";

/// The server runs before a case counts descriptors: the pipes to it are two.
fn subject_of_running_server() -> Subject {
    let _ = server();
    Subject::new("object-store", over_s3)
}

conformance::suite! {
    mod s3 = subject_of_running_server()
        .fails("file_that_grew", WHOLE_OBJECTS)
        .fails("length_follows_the_file", WHOLE_OBJECTS)
        .fails("truncated_file", WHOLE_OBJECTS)
        .leaves_out("truncated_while_being_read", WHOLE_OBJECTS)
        .leaves_out("truncated_and_regrown_while_being_read", WHOLE_OBJECTS)
        .leaves_out("working_directory_changed", "a key does not depend on the working directory")
        .fails("directory", "a store has no folders: the name of one is the name of no object")
        .fails("fifo", "the server shows regular files only")
        .leaves_out("no_permission", "the server may read the file; tests/errors.rs has refusals")
        .fails("odd_paths", "keys are UTF-8 without control characters; tests/engine.rs has odd ones")
        .fails("impossible_options_are_refused", "tests/errors.rs has the bounds of `RemoteOptions`")
        .fails("short_reads_change_nothing", NO_LOCAL_FAULTS)
        .fails("ragged_reads_change_nothing", NO_LOCAL_FAULTS)
        .fails("interruptions_change_nothing", NO_LOCAL_FAULTS)
        .fails("endless_interruption_ends", NO_LOCAL_FAULTS)
        .fails("device_error_surfaces", NO_LOCAL_FAULTS)
        .fails("placed_reads_name_the_range_that_failed", NO_LOCAL_FAULTS)
        .fails("device_error_among_neighbours", NO_LOCAL_FAULTS)
        .fails("first_device_error_is_named", NO_LOCAL_FAULTS)
        .fails("nothing_in_flight_after_an_error", NO_LOCAL_FAULTS);
}
