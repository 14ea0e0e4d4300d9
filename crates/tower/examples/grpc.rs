//! A fair gRPC server with tonic: `cargo run -p fairlane-tower --example grpc 127.0.0.1:8080`.
//!
//! Four requests are served at a time. A request over its tenant's limit gets the status
//! `RESOURCE_EXHAUSTED`: without the mapping in [`status`], tonic would reset its stream.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http;
use bytes::{Buf, BufMut};
use fairlane_tower::{AcquireError, Cost, FairError, FairLayer, FairSemaphore, Limits};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tower::{Service, ServiceBuilder};

type Tenant = String;

/// The served method.
pub const PATH: &str = "/fairlane.Model/Generate";

/// Returns the status of a request that the layer, or the inner service, did not answer.
pub fn status(error: FairError) -> Status {
    match error {
        FairError::Refused(AcquireError::Closed) => Status::unavailable(error.to_string()),
        FairError::Refused(_) => Status::resource_exhausted(error.to_string()),
        FairError::Service(error) => Status::from_error(error),
        error => Status::unknown(error.to_string()),
    }
}

/// Serves the model behind fair admission; it takes `pace` for an answer.
pub async fn serve(
    semaphore: FairSemaphore<Tenant>,
    pace: Duration,
    incoming: TcpIncoming,
) -> Result<(), tonic::transport::Error> {
    let tenant = |request: &http::Request<Body>| {
        let named = request.headers().get("x-tenant");
        let name = named.and_then(|name| name.to_str().ok());
        name.unwrap_or("anonymous").to_owned()
    };
    let fair = FairLayer::new(semaphore, tenant, |_: &http::Request<Body>| Cost::ONE);
    Server::builder()
        .layer(ServiceBuilder::new().map_err(status).layer(fair))
        .add_service(Model { pace })
        .serve_with_incoming(incoming)
        .await
}

/// A model that echoes the request. Code generated from a `.proto` file would replace it.
#[derive(Clone)]
struct Model {
    pace: Duration,
}

impl NamedService for Model {
    const NAME: &'static str = "fairlane.Model";
}

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Service<http::Request<Body>> for Model {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let model = self.clone();
        Box::pin(async move {
            tokio::time::sleep(model.pace).await;
            Ok(Grpc::new(Raw).unary(model, request).await)
        })
    }
}

impl UnaryService<Vec<u8>> for Model {
    type Response = Vec<u8>;
    type Future = Ready<Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

/// Messages of arbitrary bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(&message[..]);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; from.remaining()];
        from.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let address = std::env::args().nth(1).ok_or("usage: grpc ADDRESS:PORT")?;
    let semaphore = FairSemaphore::new(Limits {
        waiting_per_tenant: 100,
        ..Limits::permits(4)
    });
    let incoming = TcpIncoming::bind(address.parse()?)?;
    serve(semaphore, Duration::from_millis(100), incoming).await?;
    Ok(())
}
