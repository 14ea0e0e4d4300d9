//! The example with tonic.

#[allow(dead_code, unreachable_pub)] // It has a main of its own.
#[path = "../../examples/grpc.rs"]
mod example;

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use fairlane_tower::{FairSemaphore, Limits};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// Serves a model that takes `pace` for an answer.
async fn serve(semaphore: &FairSemaphore<String>, pace: Duration) -> Channel {
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let at = incoming.local_addr().unwrap();
    tokio::spawn(example::serve(semaphore.clone(), pace, incoming));
    let server = Endpoint::from_shared(format!("http://{at}")).unwrap();
    server.connect().await.unwrap()
}

async fn ask(channel: Channel, tenant: &'static str) -> Result<Vec<u8>, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let mut request = Request::new(b"a question".to_vec());
    let metadata = request.metadata_mut();
    metadata.insert("x-tenant", tenant.parse().unwrap());
    let path = PathAndQuery::from_static(example::PATH);
    let answer = client.unary(request, path, example::Raw).await?;
    Ok(answer.into_inner())
}

#[tokio::test]
async fn a_refusal_is_a_status_of_the_request_alone() {
    let semaphore = FairSemaphore::new(Limits {
        waiting_per_tenant: 1,
        ..Limits::permits(1)
    });
    let quick = serve(&semaphore, Duration::ZERO).await;
    assert_eq!(ask(quick.clone(), "alice").await.unwrap(), b"a question");
    let endless = serve(&semaphore, Duration::from_secs(3_600)).await;
    let mut flood = Vec::new();
    for under_way in 1..=2 {
        flood.push(tokio::spawn(ask(endless.clone(), "flood")));
        while semaphore.in_flight() + semaphore.waiting() < under_way {
            tokio::task::yield_now().await;
        }
    }
    // On the connection on which the tenant's other requests wait.
    let refused = ask(endless.clone(), "flood").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let says = "the limit of 1 waiting requests of this tenant";
    assert!(refused.message().contains(says), "{refused:?}");
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (1, 1));
    // The model's own status is unchanged.
    semaphore.set_permits(2);
    flood.iter().for_each(|request| request.abort());
    while semaphore.in_flight() + semaphore.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    semaphore.close();
    let closed = ask(quick, "alice").await.unwrap_err();
    assert_eq!(closed.code(), Code::Unavailable, "{closed:?}");
}

#[test]
fn a_status_of_the_service_stays_as_it_is() {
    let failed = fairlane_tower::FairError::Service(Status::not_found("no such model").into());
    let status = example::status(failed);
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "no such model")
    );
}
