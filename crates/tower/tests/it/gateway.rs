//! The example in front of a mock inference server.

#[allow(dead_code, unreachable_pub)] // It has a main of its own.
#[path = "../../examples/gateway.rs"]
mod example;

use fairlane_tower::{FairSemaphore, Limits};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn connect(to: SocketAddr, tenant: &str, tokens: u32) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let request = format!(
        "GET /generate HTTP/1.1\r\nhost: model\r\nconnection: close\r\n\
         x-tenant: {tenant}\r\nx-max-tokens: {tokens}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn ask(to: SocketAddr, tenant: &'static str, tokens: u32) -> String {
    let mut answer = String::new();
    let mut stream = connect(to, tenant, tokens).await;
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Serves a gateway whose model sends a token every `pace`.
async fn serve(semaphore: &FairSemaphore<String>, pace: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let gateway = example::gateway(semaphore.clone(), pace);
    tokio::spawn(async move { axum::serve(listener, gateway).await });
    at
}

#[tokio::test]
async fn tenants_take_turns_at_the_model_and_permits_last_as_long_as_answers() {
    let semaphore = FairSemaphore::new(Limits {
        waiting_per_tenant: 2,
        ..Limits::permits(2)
    });
    // Two models behind one semaphore: one answers, the other never ends.
    let to = serve(&semaphore, Duration::from_millis(1)).await;
    let endless = serve(&semaphore, Duration::from_secs(3_600)).await;

    let answer = ask(to, "alice", 3).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("token0 ") && answer.contains("token2 "),
        "{answer}"
    );
    assert!(!answer.contains("token3"), "{answer}");

    // One tenant has both permits, and the largest number of waiting requests.
    let mut flood = Vec::new();
    for under_way in 1..=4 {
        flood.push(connect(endless, "flood", 50).await);
        while semaphore.in_flight() + semaphore.waiting() < under_way {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (2, 2));
    let answer = ask(to, "flood", 50).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(
        answer.contains("the limit of 2 waiting requests of this tenant"),
        "{answer}"
    );
    // One more permit goes to another tenant first, although the flood has waited for longer.
    let alice = tokio::spawn(ask(to, "alice", 1));
    while semaphore.waiting() < 3 {
        tokio::task::yield_now().await;
    }
    semaphore.set_permits(3);
    let answer = alice.await.unwrap();
    assert!(answer.contains("token0 "), "{answer}");
    // Clients that disconnect free their permits and places.
    drop(flood);
    while semaphore.in_flight() + semaphore.waiting() > 0 {
        tokio::task::yield_now().await;
    }
}
