//! The page and the HTTP interface behind a reverse proxy that adds a path.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::site::{PATIENCE, wire};
use crate::site_control::{Answered, request_over};
use crate::site_control_access::{HTTP, Served, TOKEN};

/// The path at which the proxy serves the site.
const PREFIX: &str = "/fairlane";
/// The host that a browser asks for.
const PUBLIC: &str = "gateway.example.org";

/// Forwards one request, without the prefix, with the upstream's host and token, and returns the answer as it arrives.
fn pass(mut client: TcpStream, mut upstream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if head.is_empty() {
            line = match line.split_once(&format!(" {PREFIX}/")) {
                Some((method, rest)) => format!("{method} /{rest}"),
                None => {
                    let _ =
                        client.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
                    return None;
                }
            };
        } else if let Some((key, value)) = line.split_once(": ") {
            match key.to_ascii_lowercase().as_str() {
                "host" => line = format!("Host: {HTTP}\r\nAuthorization: Bearer {TOKEN}\r\n"),
                "content-length" => length = value.trim().parse().ok()?,
                _ => {}
            }
        }
        head += &line;
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    upstream.write_all(head.as_bytes()).ok()?;
    upstream.write_all(&body).ok()?;
    let mut piece = [0; 4_096];
    loop {
        match upstream.read(&mut piece).ok()? {
            0 => return Some(()),
            count => client.write_all(&piece[..count]).ok()?,
        }
    }
}

/// Starts the proxy in the network namespace of the calling thread. An empty connection stops it.
fn start_proxy() -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let running = thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            if client.peek(&mut [0]).is_ok_and(|count| count == 0) {
                return;
            }
            thread::spawn(move || pass(client, TcpStream::connect(HTTP).unwrap()));
        }
    });
    (address, running)
}

/// Sends a request to the proxy as a browser does, for a path below the prefix. No answer redirects: the site does not
/// know its prefix.
fn ask(proxy: SocketAddr, served: &Served, method: &str, path: &str, body: &str) -> Answered {
    let head = format!("Host: {PUBLIC}\r\n");
    let path = format!("{PREFIX}{path}");
    let answered = request_over(served.connect_to(proxy), (method, &path), &head, body);
    assert!(
        !(300..400).contains(&answered.status),
        "{path}: {}",
        answered.status
    );
    answered
}

/// Returns the relative addresses in a page or a script.
fn links(text: &str) -> Vec<String> {
    let marks = ["href=\"", "src=\"", "from \"./"];
    let found = marks.iter().flat_map(|mark| text.split(mark).skip(1));
    let found = found.filter_map(|rest| rest.split('"').next());
    let found = found.filter(|link| !link.starts_with('#') && !link.is_empty());
    found.map(str::to_owned).collect()
}

#[test]
fn the_page_and_the_interface_work_below_the_path_of_a_reverse_proxy() {
    let Some(wire) = wire("a reverse proxy", 1) else {
        return;
    };
    let served = Served::start(&wire, &[("token", TOKEN)]);
    let (proxy, running) = wire.middle().run(start_proxy);
    let get = |path: &str| ask(proxy, &served, "GET", path, "");
    let page = get("/");
    assert_eq!(page.status, 200);
    let mut links_left: Vec<String> = links(&page.body);
    let mut seen = Vec::new();
    while let Some(link) = links_left.pop() {
        assert!(!link.starts_with('/') && !link.contains("://"), "{link}");
        if seen.contains(&link) {
            continue;
        }
        let file = get(&format!("/{link}"));
        assert_eq!(file.status, 200, "{link}");
        if link.ends_with(".js") && !link.contains('/') {
            // Addresses of the API are relative as well.
            let is_absolute = ["\"/v1", "'/v1", "`/v1"].map(|it| file.body.contains(it));
            assert_eq!(is_absolute, [false; 3], "{link}");
            links_left.extend(links(&file.body));
        }
        seen.push(link);
    }
    assert!(
        seen.len() >= 10 && seen.contains(&"tree.js".to_owned()),
        "{seen:?}"
    );

    let state = get("/v1/state").json();
    assert_eq!(state["links"][0]["name"], "up");
    let changed = ask(
        proxy,
        &served,
        "PATCH",
        "/v1/links/up",
        "{\"rate\":\"9mbit\"}",
    );
    assert_eq!(changed.status, 200, "{}", changed.body);
    let config = get("/v1/config").body;
    assert!(config.contains("rate = \"9mbit\""), "{config}");
    // Other paths do not redirect either.
    for path in [
        "",
        "/v1",
        "/v1/",
        "/v1/links",
        "/v1/links/",
        "//",
        "/nosuch",
    ] {
        get(path);
    }
    let unknown = get("/v1/nosuch");
    assert_eq!(unknown.status, 404);
    assert!(serde_json::from_str::<Value>(&unknown.body).is_ok());

    // The stream arrives one state at a time.
    let mut stream = served.connect_to(proxy);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {PREFIX}/v1/events HTTP/1.1\r\nHost: {PUBLIC}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
    let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let head = head.join("\n").to_ascii_lowercase();
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("x-accel-buffering: no"), "{head}");
    let states = lines.filter(|line| line.starts_with("data:"));
    assert_eq!(states.take(2).count(), 2);
    drop(stream);

    // A proxy that forwards the public host name is rejected.
    let head = format!("Host: {PUBLIC}\r\n");
    let direct = request_over(served.connect(), ("GET", "/v1/state"), &head, "");
    assert_eq!(direct.status, 403);
    drop(served.connect_to(proxy));
    running.join().unwrap();
}
