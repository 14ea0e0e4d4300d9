//! The example in front of a mock of an inference server.

#[allow(dead_code, unreachable_pub)] // It has a main of its own.
#[path = "../../examples/gateway.rs"]
mod example;

use fairlane_tower::{FairSemaphore, Limits};
use std::net::SocketAddr;
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

async fn ask(to: SocketAddr, tenant: &str, tokens: u32) -> String {
    let mut answer = String::new();
    let mut stream = connect(to, tenant, tokens).await;
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn tenants_take_turns_at_the_model_and_permits_last_as_long_as_answers() {
    let semaphore = FairSemaphore::new(Limits {
        waiting_per_tenant: 2,
        ..Limits::permits(2)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let gateway = example::gateway(semaphore.clone());
    tokio::spawn(async move { axum::serve(listener, gateway).await });

    let answer = ask(to, "alice", 3).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("token0 ") && answer.contains("token2 "),
        "{answer}"
    );
    assert!(!answer.contains("token3"), "{answer}");

    // One tenant has both permits, and as many requests waiting as it may.
    let mut flood = Vec::new();
    for under_way in 1..=4 {
        flood.push(connect(to, "flood", 50).await);
        while semaphore.in_flight() + semaphore.waiting() < under_way {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (2, 2));
    let answer = ask(to, "flood", 50).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(
        answer.contains("2 requests of this tenant wait already"),
        "{answer}"
    );
    // Another tenant is let in, and has its answer.
    let answer = ask(to, "alice", 1).await;
    assert!(answer.contains("token0 "), "{answer}");
    // Clients that go away give back what they held or waited for.
    drop(flood);
    while semaphore.in_flight() + semaphore.waiting() > 0 {
        tokio::task::yield_now().await;
    }
}
