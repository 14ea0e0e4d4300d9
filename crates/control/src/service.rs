//! The server: a thread of its own that speaks HTTP at a Unix socket, and on loopback. Nothing that
//! anybody does here is waited for by the site.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlane_config::Control;
use fairlane_io::{BindError, Carries, Listener};
use fairlane_site::{Handle, Report};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::routes::{Access, Api};
use crate::stream::State;
use crate::token::Token;

/// Connections that are served at a time; the next ones wait in the kernel's queue.
const CONNECTIONS: usize = 1_536;
/// How long a request may take to arrive.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait where the system has no more file descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// Why a site cannot be controlled.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct ServeError {
    /// What was being done.
    pub what: String,
    /// What the system says.
    pub reason: io::Error,
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Service {
    reports: watch::Sender<Arc<State>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    http: Option<SocketAddr>,
    /// Takes its file away when it goes.
    _socket: Option<Listener>,
}

impl Service {
    /// Serves a site where its configuration says. `file` is where it was read from.
    ///
    /// # Errors
    ///
    /// A token cannot be read; the socket or the address cannot be used. Nothing is left then.
    pub fn start(
        control: &Control,
        site: Handle,
        file: Option<PathBuf>,
    ) -> Result<Service, ServeError> {
        let token = control.token.as_deref().map(Token::read).transpose()?;
        let read_token = control.read_token.as_deref().map(Token::read).transpose()?;
        let http = control.http.map(bind).transpose()?;
        let address = http.as_ref().and_then(|http| http.local_addr().ok());
        let socket = control
            .socket
            .as_deref()
            .map(|path| listen(path, control.mode));
        let socket = socket.transpose()?;
        let unix = socket.as_ref().map(|socket| socket.socket().try_clone());
        let unix = unix
            .transpose()
            .map_err(doing("starting the control interface"))?;
        let (reports, states) = watch::channel(Arc::default());
        let api = Arc::new(Api::new(site, states, file, token, read_token));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // Where changes wait for the site.
            .max_blocking_threads(8)
            .build()
            .map_err(doing("starting the control interface"))?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async move {
                let unix = unix.map(StdListener::from);
                if let Some(unix) = unix.and_then(|unix| UnixListener::from_std(unix).ok()) {
                    tokio::spawn(accept(Ports::Unix(unix), Arc::clone(&api)));
                }
                if let Some(http) = http.and_then(|http| TcpListener::from_std(http).ok()) {
                    tokio::spawn(accept(Ports::Http(http), api));
                }
                let _ = stopped.await;
            });
            // Whoever waits for a change is told by its end; nobody waits for him.
            runtime.shutdown_background();
        });
        let thread = thread.map_err(doing("starting a thread"))?;
        Ok(Service {
            reports,
            stop: Some(stop),
            thread: Some(thread),
            http: address,
            _socket: socket,
        })
    }

    /// The state from now on. Never waits.
    pub fn publish(&self, report: &Arc<Report>) {
        self.reports.send_replace(Arc::new(State::of(report)));
    }

    /// Where HTTP is served.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    let what = what.into();
    move |reason| ServeError { what, reason }
}

/// A loopback address.
fn bind(address: SocketAddr) -> Result<std::net::TcpListener, ServeError> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(doing(format!("control: http {address}")))
}

/// A socket at a path that only those may open whom the mode lets.
fn listen(path: &Path, mode: u32) -> Result<Listener, ServeError> {
    Listener::bind(path, mode, Carries::Stream).map_err(|error| ServeError {
        what: format!("control: socket {}", path.display()),
        reason: match error {
            BindError::Io(error) => error,
            other => io::Error::other(other),
        },
    })
}

/// Where connections come.
enum Ports {
    Unix(UnixListener),
    Http(TcpListener),
}

/// Serves whoever connects. Each port has places of its own, so that nobody who may open only one
/// keeps others from the other.
async fn accept(ports: Ports, api: Arc<Api>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let accepted = match &ports {
            Ports::Unix(port) => port.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Ports::Http(port) => port.accept().await.map(|(stream, _)| Stream::Http(stream)),
        };
        let api = Arc::clone(&api);
        match accepted {
            Ok(stream) => {
                tokio::spawn(async move {
                    match stream {
                        Stream::Unix(stream) => serve(stream, api, Access::Unix).await,
                        Stream::Http(stream) => serve(stream, api, Access::Http).await,
                    }
                    drop(place);
                });
            }
            // No file descriptors, say.
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Http(TcpStream),
}

/// One request of a connection, which has so long to arrive.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, api: Arc<Api>, access: Access) {
    let answer = service_fn(|request| Arc::clone(&api).answer(request, access));
    // A connection carries one request: whoever is slow, or silent, keeps its place for no longer.
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    // Whoever went away, or spoke something else, has had his answer.
    drop(served);
}
