//! A fair gateway in front of an inference server that streams tokens, which is mocked here: `cargo run -p
//! fairlane-tower --example gateway 127.0.0.1:8080`, then `curl -N -H 'x-tenant: alice' -H 'x-max-tokens: 200'
//! http://127.0.0.1:8080/generate`
//!
//! Four requests are served at a time. A tenant is charged for the most tokens that it requests, and then for those
//! that it received.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use fairlane_tower::{AcquireError, Cost, FairError, FairLayer, FairSemaphore, Limits, Permit};
use futures_util::stream;

type Tenant = String;

/// The largest number of tokens in an answer.
const MOST: u32 = 1000;

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

/// Returns the requested tokens, limited to the model's maximum: a larger request would be credited with the
/// difference.
fn max_tokens(request: &Request) -> u32 {
    let asked = header(request, "x-max-tokens").and_then(|text| text.parse().ok());
    asked.unwrap_or(MOST).min(MOST)
}

/// The model: sends the allowed number of tokens, one every `pace`.
async fn generate(mut request: Request, pace: Duration) -> Response {
    let permit = request.extensions_mut().remove::<Arc<Permit<Tenant>>>();
    let tokens = max_tokens(&request);
    let answer = stream::unfold((0, permit), move |(said, permit)| async move {
        if said == tokens {
            return None; // and the permit is free
        }
        tokio::time::sleep(pace).await;
        // A client that disconnects is charged for the tokens it received.
        let actual = Cost::clamped(u64::from(said) + 1);
        permit.iter().for_each(|permit| permit.correct(actual));
        let token = format!("token{said} ");
        Some((Ok::<_, Infallible>(token), (said + 1, permit)))
    });
    Response::new(Body::from_stream(answer))
}

async fn refused(error: FairError) -> (StatusCode, String) {
    let status = match error {
        FairError::Refused(AcquireError::TenantFull { .. }) => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, error.to_string())
}

/// Returns the model behind fair admission; it sends a token every `pace`.
pub fn gateway(semaphore: FairSemaphore<Tenant>, pace: Duration) -> Router {
    let whose = |request: &Request| header(request, "x-tenant").unwrap_or("nobody").to_owned();
    let cost = |request: &Request| Cost::clamped(max_tokens(request).into());
    // The permit is passed with the request, so it lasts until the answer has been streamed.
    let fair = FairLayer::new(semaphore, whose, cost).hand_over(|mut request: Request, permit| {
        request.extensions_mut().insert(Arc::new(permit));
        request
    });
    let model = move |request| generate(request, pace);
    let service = Router::new().route("/generate", get(model));
    service.layer((HandleErrorLayer::new(refused), fair))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let semaphore = FairSemaphore::new(Limits {
        waiting_per_tenant: 100,
        ..Limits::permits(4)
    });
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let gateway = gateway(semaphore, Duration::from_millis(5));
    Ok(axum::serve(listener, gateway).await?)
}
