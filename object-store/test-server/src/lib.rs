//! An S3 server on the loopback interface, for tests: it serves folders as buckets, checks real signatures, and fails
//! in any way that a test asks for.
//!
//! Objects are files of the folders, as they are at the moment of a request. An object's ETag changes whenever its file
//! is replaced or written to. Below `/plain/` the same objects can be read without signatures, as from a web server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the whole crate is a helper of tests"
)]

mod fault;
mod files;
mod plain;
mod s3;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};

use fault::{Answer, answer_to};
pub use fault::{Fault, RequestInfo};
use files::Buckets;

/// The key id that the server knows.
pub const KEY_ID: &str = "AKIDRINGMAINTESTS";
/// The secret key of [`KEY_ID`]. No message may contain it.
pub const SECRET_KEY: &str = "c2VjcmV0LWtleS1vZi10ZXN0cw5ecret";

type Decide = dyn Fn(&RequestInfo) -> Vec<Fault> + Send + Sync;

/// A server that runs until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Option<Runtime>,
    /// While the server is stopped: keeps its port, and refuses connections because it does not listen.
    held: Option<TcpSocket>,
}

/// A server ends within this time, unless a test has made a decision that never returns.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// What its connections share.
pub(crate) struct Shared {
    s3: S3Service,
    pub(crate) buckets: Buckets,
    decide: Mutex<Arc<Decide>>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
}

impl Server {
    /// Starts a server whose buckets are these folders.
    pub fn start<N: Into<String>, P: Into<PathBuf>>(
        buckets: impl IntoIterator<Item = (N, P)>,
    ) -> Self {
        let buckets = buckets.into_iter().map(|(name, folder)| (name.into(), folder.into()));
        let buckets = Buckets(buckets.collect());
        let mut service = S3ServiceBuilder::new(s3::FolderS3(buckets.clone()));
        service.set_auth(SimpleAuth::from_single(KEY_ID, SECRET_KEY));
        let shared = Arc::new(Shared {
            s3: service.build(),
            buckets,
            decide: Mutex::new(Arc::new(|_| Vec::new())),
            counters: Counters::default(),
        });
        let address = ([127, 0, 0, 1], 0).into();
        let mut server = Self { shared, address, runtime: None, held: Some(bound(address)) };
        server.start_again();
        server
    }

    /// Starts the server at its old address, after [`stop`](Self::stop).
    pub fn start_again(&mut self) {
        let Some(socket) = self.held.take() else { return };
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = {
            let _entered = runtime.enter();
            socket.listen(BACKLOG).expect("the address")
        };
        self.address = listener.local_addr().unwrap();
        runtime.spawn(accept(listener, Arc::clone(&self.shared)));
        self.runtime = Some(runtime);
    }

    /// Ends the server with all its connections. After this, connections to its address are refused, and the port
    /// stays its own.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(STOP_TIMEOUT);
            self.held = Some(bound(self.address));
        }
        self.shared.counters.in_flight.store(0, Ordering::SeqCst);
    }

    /// The URL of the server, without a slash at its end.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The settings that let a client of `object_store` read from the server.
    #[must_use]
    pub fn client_config(&self) -> Vec<(String, String)> {
        let endpoint = self.endpoint();
        let config = [
            ("aws_endpoint", endpoint.as_str()),
            ("aws_allow_http", "true"),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", KEY_ID),
            ("aws_secret_access_key", SECRET_KEY),
        ];
        config.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    /// From now on, `decide` says for each request how it fails.
    pub fn set_faults(&self, decide: impl Fn(&RequestInfo) -> Vec<Fault> + Send + Sync + 'static) {
        *self.shared.decide.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(decide);
    }

    /// From now on, no request fails.
    pub fn clear_faults(&self) {
        self.set_faults(|_| Vec::new());
    }

    /// The requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.counters.requests.load(Ordering::SeqCst)
    }

    /// The most requests that were in flight at the same time since the last call.
    #[must_use]
    pub fn take_in_flight_max(&self) -> u64 {
        self.shared.counters.in_flight_max.swap(0, Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A socket that has this address, and does not listen. Connections of an earlier server may still be closing.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option of the socket");
    socket.bind(address).expect("the address");
    socket
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| serve(Arc::clone(&shared), request));
            // An error is that of a client that has gone, or one that a test has asked for.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    shared: Arc<Shared>,
    request: http::Request<hyper::body::Incoming>,
) -> Result<Answer, std::io::Error> {
    let number = shared.counters.requests.fetch_add(1, Ordering::SeqCst);
    let in_flight = InFlight::new(Arc::clone(&shared));
    let info = RequestInfo::new(number, &request);
    let decide = Arc::clone(&shared.decide.lock().unwrap_or_else(PoisonError::into_inner));
    let faults = decide(&info);
    let answer = answer_to(&shared, request, &info, faults).await?;
    Ok(fault::with_guard(answer, in_flight))
}

/// A request that is counted until its answer has been sent.
pub(crate) struct InFlight(Arc<Shared>);

impl InFlight {
    fn new(shared: Arc<Shared>) -> Self {
        let now = shared.counters.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.counters.in_flight_max.fetch_max(now, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let minus_one = |count: u64| Some(count.saturating_sub(1));
        let _ =
            self.0.counters.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, minus_one);
    }
}
