//! The server: a thread that serves HTTP on a Unix socket and on loopback. The site never waits for a client.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlane_config::{Control, Grant};
use fairlane_daemon::{Handle, HandoverExtra, Report};
use fairlane_io::{BindError, Carries, Listener};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;
use tracing::warn;

use crate::grants::{GrantRecords, Grants};
use crate::history::SharedHistory;
use crate::patient::Patient;
use crate::reading::PIECE;
use crate::routes::{Access, Api};
use crate::stream::State;
use crate::token::Token;

/// Maximum number of connections, if the system allows that many files; further ones wait in the kernel's queue. Every
/// user of the machine can connect over HTTP, only users with the right to change the site at the socket.
const AT_SOCKET: usize = 1_536;
const OVER_HTTP: usize = 256;
/// The requested limit of open files: those connections and the site's own files.
const FILES: u64 = 4_096;
/// Time limit for the last answers after the site has ended.
const LAST: Duration = Duration::from_millis(200);
/// Time limit for a request to arrive, and for a client to accept more of its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after the system has run out of file descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// The control interface cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct ServeError {
    /// The failed operation.
    pub what: String,
    /// The system's error.
    pub reason: io::Error,
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Service {
    reports: Option<watch::Sender<Arc<State>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    path: Option<PathBuf>,
    http: Option<SocketAddr>,
    /// Removes its file when it is dropped.
    socket: Option<Listener>,
    to_hand_over: ToHandOver,
}

/// The grants and sockets for a handover.
#[derive(Clone, Debug)]
struct ToHandOver {
    grants: Arc<Grants>,
    unix: Option<Arc<OwnedFd>>,
    http: Option<Arc<OwnedFd>>,
}

/// The grants and sockets that a service inherits from another process.
#[derive(Debug, Default)]
pub struct Inherited {
    kept: GrantRecords,
    unix: Option<OwnedFd>,
    http: Option<OwnedFd>,
}

/// The handover state in its encoded form.
#[derive(Default, Serialize, Deserialize)]
struct HandoverState {
    kept: GrantRecords,
    unix: bool,
    http: bool,
}

impl Inherited {
    /// Decodes the state from a process's [handover](Service::to_hand_over); empty if it had no service.
    ///
    /// # Errors
    ///
    /// The text or the files are not those of a service.
    pub fn of(beside: HandoverExtra) -> Result<Inherited, ServeError> {
        if beside.text.is_empty() {
            return Ok(Inherited::default());
        }
        let told = serde_json::from_str(&beside.text).map_err(io::Error::from);
        let told: HandoverState = told.map_err(doing("taking over the control interface"))?;
        let mut files = beside.files.into_iter();
        Ok(Inherited {
            unix: files.next().filter(|_| told.unix),
            http: match told.unix {
                true => files.next().filter(|_| told.http),
                false => None,
            },
            kept: told.kept,
        })
    }

    /// Returns the grants.
    #[must_use]
    pub fn grants(&self) -> Vec<Arc<Grant>> {
        self.kept.grants()
    }
}

/// Reads the tokens for changes and for reading, if the configuration names files with them.
fn tokens(control: &Control) -> Result<[Option<Token>; 2], ServeError> {
    let read = |path: &Option<PathBuf>| path.as_deref().map(Token::read).transpose();
    Ok([read(&control.token)?, read(&control.read_token)?])
}

/// Checks that each token file contains a token.
///
/// # Errors
///
/// Those of [`Service::start`].
pub fn check_tokens(control: &Control) -> Result<(), ServeError> {
    tokens(control).map(drop)
}

impl Service {
    /// Serves a site on the addresses of its configuration, with the grants and sockets of another process if any: then
    /// it answers no request before the site has published its state. `file` is the file of the configuration.
    ///
    /// # Errors
    ///
    /// A token cannot be read, or the socket or the address cannot be used. No socket file remains.
    pub fn start(
        control: &Control,
        site: Handle,
        file: Option<PathBuf>,
        inherited: Inherited,
    ) -> Result<Service, ServeError> {
        let tokens = tokens(control)?;
        let Inherited { kept, unix, http } = inherited;
        let waits = unix.is_some() || http.is_some();
        let http = match (control.http, http) {
            (Some(_), Some(inherited)) => Some(inherited.into()),
            (address, _) => address.map(bind).transpose()?,
        };
        let address = http.as_ref().and_then(|http| http.local_addr().ok());
        let socket = control
            .socket
            .as_deref()
            .map(|path| listen(path, control.mode, unix));
        let socket = socket.transpose()?;
        let unix = socket.as_ref().map(|socket| socket.socket().try_clone());
        let unix = unix
            .transpose()
            .map_err(doing("starting the control interface"))?;
        let (reports, states) = watch::channel(Arc::default());
        let history = SharedHistory::default();
        let noting = history.clone().follow(states.clone());
        let mut told = states.clone();
        let api = Arc::new(Api::new(site, states, history, file, tokens));
        api.grants().go_on_with(kept);
        let to_hand_over = ToHandOver {
            grants: api.grants(),
            unix: duplicate(unix.as_ref())?,
            http: duplicate(http.as_ref())?,
        };
        let starting = || doing("starting the control interface");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(starting())?;
        let mut ports = Vec::new();
        {
            let _here = runtime.enter();
            if let Some(unix) = unix {
                let port = UnixListener::from_std(StdListener::from(unix));
                ports.push(Port::Unix(port.map_err(starting())?));
            }
            if let Some(http) = http {
                let port = TcpListener::from_std(http);
                ports.push(Port::Http(port.map_err(starting())?));
            }
        }
        // Each port gets at most a quarter of the open files: the site needs files too.
        let files = usize::try_from(files()).unwrap_or(usize::MAX) / 4;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async move {
                if waits {
                    // An error means that the site ended before its first state.
                    let _ = told.changed().await;
                }
                tokio::spawn(noting);
                serve_all(ports, files, api, stopped).await;
            });
            runtime.shutdown_background();
        });
        let thread = thread.map_err(doing("starting a thread"))?;
        Ok(Service {
            reports: Some(reports),
            stop: Some(stop),
            thread: Some(thread),
            path: control.socket.clone(),
            http: address,
            socket,
            to_hand_over,
        })
    }

    /// Returns a function that any thread may call for the state of a handover.
    pub fn to_hand_over(&self) -> impl Fn() -> io::Result<HandoverExtra> + Send + use<> {
        let to_hand_over = self.to_hand_over.clone();
        move || {
            let ToHandOver { grants, unix, http } = &to_hand_over;
            let told = HandoverState {
                kept: grants.kept(),
                unix: unix.is_some(),
                http: http.is_some(),
            };
            let files = unix.iter().chain(http).map(|file| file.try_clone());
            Ok(HandoverExtra {
                text: serde_json::to_string(&told)?,
                files: files.collect::<io::Result<_>>()?,
            })
        }
    }

    /// Keeps the socket's file, after another process has taken over.
    pub fn leave(&mut self) {
        if let Some(socket) = &mut self.socket {
            socket.leave();
        }
    }

    /// Publishes a state. Never waits. Inherited sockets become its own with the first one.
    pub fn publish(&mut self, report: &Arc<Report>) {
        if let Some(socket) = &mut self.socket {
            socket.own();
        }
        if let Some(reports) = &self.reports {
            reports.send_replace(Arc::new(State::of(report)));
        }
    }
}

impl fmt::Display for Service {
    /// Writes its addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.path.iter().map(|path| path.display().to_string());
        let http = self.http.iter().map(|address| format!("http://{address}"));
        f.write_str(&socket.chain(http).collect::<Vec<_>>().join(", "))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Streams end with the last state, then all else.
        drop(self.reports.take());
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

/// Listens at a loopback address.
fn bind(address: SocketAddr) -> Result<std::net::TcpListener, ServeError> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(doing(format!("control: http {address}")))
}

fn duplicate(socket: Option<&impl AsFd>) -> Result<Option<Arc<OwnedFd>>, ServeError> {
    let socket = socket.map(|socket| socket.as_fd().try_clone_to_owned());
    let socket = socket.transpose();
    let socket = socket.map_err(doing("starting the control interface"))?;
    Ok(socket.map(Arc::new))
}

/// Listens on a socket at a path, with a mode that restricts access; reuses the listening socket if it was inherited.
fn listen(path: &Path, mode: u32, inherited: Option<OwnedFd>) -> Result<Listener, ServeError> {
    let listening = match inherited {
        Some(socket) => Listener::share(path, socket).map_err(BindError::Io),
        None => Listener::bind(path, mode, Carries::Stream),
    };
    listening.map_err(|error| ServeError {
        what: format!("control: socket {}", path.display()),
        reason: match error {
            BindError::Io(error) => error,
            other => io::Error::other(other),
        },
    })
}

/// Raises the limit of open files as far as possible without privilege, up to [`FILES`], and returns it.
fn files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(FILES);
    if limit.current.is_some_and(|current| current < most) {
        limit.current = Some(most);
        // On failure the former limit remains.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A listening socket.
enum Port {
    Unix(UnixListener),
    Http(TcpListener),
}

impl Port {
    fn most(&self) -> usize {
        match self {
            Port::Unix(_) => AT_SOCKET,
            Port::Http(_) => OVER_HTTP,
        }
    }
}

/// Serves all ports until it is stopped.
async fn serve_all(ports: Vec<Port>, files: usize, api: Arc<Api>, stopped: oneshot::Receiver<()>) {
    tokio::spawn(api.grants().end_in_time());
    tokio::spawn(Arc::clone(&api).let_go());
    let mut all = Vec::new();
    for port in ports {
        let most = port.most().min(files);
        let places = Arc::new(Semaphore::new(most));
        let accepting = accept(port, Arc::clone(&api), Arc::clone(&places));
        all.push((tokio::spawn(accepting), places, most as u32));
    }
    let _ = stopped.await;
    for (accepting, ..) in &all {
        accepting.abort();
    }
    // Clients that wait for a change or a state get their last answer.
    let told = async {
        for (_, places, most) in &all {
            let _ = places.acquire_many(*most).await;
        }
    };
    let _ = timeout(LAST, told).await;
}

/// Serves the connections of a port. Each port has its own limit, so that a flood at one does not block the other.
async fn accept(port: Port, api: Arc<Api>, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let accepted = match &port {
            Port::Unix(port) => port.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Port::Http(port) => port.accept().await.map(|(stream, _)| Stream::Http(stream)),
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
            // For example, no file descriptors are left.
            Err(error) => {
                warn!(name: "no connection", %error, "cannot accept a connection: {error}");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Http(TcpStream),
}

/// Serves the one request of a connection, which must arrive in time.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, api: Arc<Api>, access: Access) {
    let answer = service_fn(|request| Arc::clone(&api).answer(request, access));
    // A connection carries one request, so that a slow or silent client does not keep its place.
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .max_buf_size(PIECE)
        .serve_connection(TokioIo::new(Patient::new(stream, PATIENCE)), answer)
        .await;
    // Clients that disconnect or violate the protocol need no further answer.
    drop(served);
}
