//! The client against a service that fails in every way. What a real service says is tested with a real one
//! (`tests/cluster/three/backups.rs`).

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::*;
use crate::backup::address::TargetAddress;

const SECRET: &str = "wJalrXUtnFEMI";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const BUSY: &str = "HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n";
/// The service closes without an answer.
const GONE: &str = "";
/// The service never answers.
const SILENT: &str = "silent";

/// The requests of a service, and the connections that it left open.
type Served = JoinHandle<(Vec<String>, Vec<TcpStream>)>;

/// Serves one connection for each of the answers.
fn serve(answers: &[&str]) -> (BucketTarget, Served, tempfile::TempDir) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let requests = std::thread::spawn(move || {
        let mut silent = Vec::new();
        let one = |answer: String| {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read_request(&mut stream);
            if answer == SILENT {
                silent.push(stream);
            } else {
                stream.write_all(answer.as_bytes()).unwrap();
            }
            request
        };
        let requests = answers.into_iter().map(one).collect();
        (requests, silent)
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s3");
    std::fs::write(&file, format!("AKID:{SECRET}\n")).unwrap();
    let access = BucketAccess {
        endpoint: endpoint.parse().unwrap(),
        region: "us-east-1".to_owned(),
        credentials: Secret::File(file.to_str().unwrap().to_owned()),
    };
    let Ok(TargetAddress::Bucket(address)) = "s3://bucket/p".parse() else { panic!("it is one") };
    let pauses = &[Duration::ZERO; 3];
    let timeouts = BucketTimeouts {
        connect: Duration::from_secs(10),
        answer: Duration::from_millis(300),
        slowest: 1 << 20,
        pauses,
    };
    (BucketTarget::with_timeouts(address, access, timeouts).unwrap(), requests, folder)
}

fn refusal(status: &str, error: &str) -> String {
    let body = format!("<Error>{error}</Error>");
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn read_request(stream: &mut TcpStream) -> String {
    let (mut request, mut buffer) = (String::new(), [0; 4_096]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{request}");
        request.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        if let Some((head, body)) = request.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return request;
            }
        }
    }
}

#[test]
fn request_is_repeated_whole_until_it_is_answered() {
    let (target, requests, _folder) = serve(&[BUSY, GONE, OK]);
    target.put("blocks/ab", b"content").unwrap();
    let (requests, _) = requests.join().unwrap();
    assert_eq!(requests.len(), 3);
    for request in requests {
        assert!(request.starts_with("PUT /bucket/p/blocks/ab HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\ncontent"), "{request}");
        assert!(request.contains("authorization: AWS4-HMAC-SHA256 Credential=AKID/"), "{request}");
        let hash = format!("x-amz-content-sha256: {}\r\n", signature::sha256(b"content"));
        assert!(request.contains(&hash) && !request.contains(SECRET), "{request}");
    }
}

#[test]
fn refusal_is_final_and_in_the_words_of_the_service() {
    let refusal = refusal("403 Forbidden", "<Code>AccessDenied</Code><Message>This key may not.</Message>");
    let (target, requests, _folder) = serve(&[&refusal]);
    let error = target.put("blocks/ab", b"content").unwrap_err().to_string();
    assert_eq!(error, "the service answered 403 AccessDenied This key may not.");
    assert_eq!(requests.join().unwrap().0.len(), 1);
}

#[test]
fn silent_service_is_left_after_the_last_attempt() {
    let (target, requests, _folder) = serve(&[SILENT; 3]);
    let began = Instant::now();
    let error = target.get("blocks/ab").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(error.to_string().contains("waiting for an answer took more than 300ms"), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(900));
    assert_eq!(requests.join().unwrap().0.len(), 3);
}

#[test]
fn answer_that_is_cut_short_is_no_file() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let (target, _requests, _folder) = serve(&[cut; 3]);
    let error = target.get("blocks/ab").unwrap_err().to_string();
    assert!(error.contains("the answer is not whole"), "{error}");
}

#[test]
fn missing_bucket_is_not_taken_for_a_missing_file() {
    let missing = |code: &str| refusal("404 Not Found", &format!("<Code>{code}</Code>"));
    let (file, bucket) = (missing("NoSuchKey"), missing("NoSuchBucket"));
    let (target, _requests, _folder) = serve(&[&file, &bucket, &bucket]);
    assert_eq!(target.get("blocks/ab").unwrap_err().kind(), ErrorKind::NotFound);
    let error = target.get("blocks/ab").unwrap_err();
    assert!(error.kind() != ErrorKind::NotFound && error.to_string().contains("NoSuchBucket"), "{error}");
    assert!(target.delete("blocks/ab").is_err());
}

#[test]
fn unreadable_credentials_are_named_and_not_shown() {
    let (target, _requests, folder) = serve(&[]);
    std::fs::write(folder.path().join("s3"), SECRET).unwrap();
    let error = target.get("blocks/ab").unwrap_err().to_string();
    assert!(error.contains("are not ID:SECRET on one line") && !error.contains(SECRET), "{error}");
}
