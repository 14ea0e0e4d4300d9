//! A client of a running site's control interface.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Time limit for an answer. Parsing and checking a large configuration takes long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The address of a site.
#[derive(Clone, Debug)]
pub enum Target {
    /// A Unix socket.
    Socket(PathBuf),
    /// HTTP, with a token if the site requires one.
    Http(SocketAddr, Option<String>),
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No site could be reached.
    #[error(
        "cannot reach fairlane at {at}: {reason} (is it running, and does [control] of the site file name this place?)"
    )]
    Unreachable {
        /// The address.
        at: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The answer is malformed.
    #[error("{at}: {reason}")]
    Broken {
        /// The address.
        at: String,
        /// The problem.
        reason: String,
    },
    /// The site rejected the request.
    #[error("{sentence}")]
    Refused {
        /// The status code.
        status: u16,
        /// The site's sentence.
        sentence: String,
    },
}

type Result<T> = std::result::Result<T, ClientError>;

/// Sends requests to one site.
#[derive(Debug)]
pub struct Client {
    target: Target,
    runtime: Runtime,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Socket(path) => path.display().fmt(f),
            Target::Http(address, _) => address.fmt(f),
        }
    }
}

impl Client {
    /// Creates a client of this address. Opens no connection yet.
    ///
    /// # Errors
    ///
    /// The system cannot provide an event loop.
    pub fn new(target: Target) -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Client { target, runtime })
    }

    /// Sends a request and returns the answer's body. The body of a change is JSON or a configuration.
    ///
    /// # Errors
    ///
    /// The site does not answer, or rejects the request.
    pub fn ask(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Bytes> {
        let body = body.into();
        self.runtime.block_on(async {
            let answered = async {
                let answer = self.send(method, path, body).await?;
                let body = answer.into_body().collect().await;
                body.map(http_body_util::Collected::to_bytes)
                    .map_err(|error| self.broken(error))
            };
            let answered = timeout(PATIENCE, answered).await;
            answered.map_err(|_| self.broken("no answer came within a minute"))?
        })
    }

    /// Sends a request and returns the answer as JSON.
    ///
    /// # Errors
    ///
    /// Those of [`ask`](Client::ask), or the answer is not JSON.
    pub fn json(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Json> {
        let body = self.ask(method, path, body)?;
        serde_json::from_slice(&body).map_err(|error| self.broken(error))
    }

    /// Passes each published state to `each`, until that ends the stream or the site ends.
    ///
    /// # Errors
    ///
    /// Those of [`json`](Client::json).
    pub fn watch(&self, mut each: impl FnMut(Json) -> bool) -> Result<()> {
        self.runtime.block_on(async {
            let answer = self.send(Method::GET, "/v1/events", Bytes::new()).await?;
            let mut body = answer.into_body();
            let mut text = Vec::new();
            // Resumes the search for the end of an event: a state of many classes arrives in many frames.
            let mut looked = 0;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| self.broken(error))?;
                text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = text[looked..].windows(2).position(|two| two == b"\n\n") {
                    let event: Vec<u8> = text.drain(..looked + end + 2).collect();
                    looked = 0;
                    let data = event.split(|&byte| byte == b'\n');
                    let data = data.filter_map(|line| line.strip_prefix(b"data: "));
                    for data in data {
                        let state = serde_json::from_slice(data);
                        if !each(state.map_err(|error| self.broken(error))?) {
                            return Ok(());
                        }
                    }
                }
                looked = text.len().saturating_sub(1);
            }
            Ok(())
        })
    }

    fn broken(&self, reason: impl ToString) -> ClientError {
        ClientError::Broken {
            at: self.target.to_string(),
            reason: reason.to_string(),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>> {
        let unreachable = |reason| ClientError::Unreachable {
            at: self.target.to_string(),
            reason,
        };
        let mut request = Request::builder().method(method).uri(path);
        let answer = match &self.target {
            Target::Socket(socket) => {
                let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
                request = request.header(HOST, "localhost");
                self.exchange(stream, request, body).await?
            }
            Target::Http(address, token) => {
                let stream = TcpStream::connect(address).await.map_err(unreachable)?;
                request = request.header(HOST, address.to_string());
                if let Some(token) = token {
                    request = request.header(AUTHORIZATION, format!("Bearer {token}"));
                }
                self.exchange(stream, request, body).await?
            }
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| self.broken(error))?.to_bytes();
        Err(ClientError::Refused {
            status: status.as_u16(),
            sentence: sentence(status, &body),
        })
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        request: hyper::http::request::Builder,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| self.broken(error))?;
        let shaken = handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| self.broken(error))?;
        tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        answer.map_err(|error| self.broken(error))
    }
}

/// Returns a name encoded as a part of a path.
#[must_use]
pub fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// Returns the sentence of a rejected request.
fn sentence(status: StatusCode, body: &[u8]) -> String {
    let said: Option<Json> = serde_json::from_slice(body).ok();
    let said = said.and_then(|said| Some(said.get("error")?.as_str()?.to_owned()));
    said.unwrap_or_else(|| status.to_string())
}
