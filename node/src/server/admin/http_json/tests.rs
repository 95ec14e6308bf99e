//! Tests of the table and of the translation. `node/tests/node/http_json.rs` calls a real node.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;
use std::{env, fs};

use axum::Router;
use axum::body::Bytes;
use axum::middleware::{from_fn, from_fn_with_state};
use http_body_util::BodyExt;
use prost::Message;
use reveille_proto::admin::v1::{
    CancelMessageRequest, DeleteScheduleRequest, ListDoubtsRequest, PutTemplateRequest, SendMessageRequest,
    UpdateScheduleRequest,
};
use serde_json::Value;
use tokio_stream::StreamExt as _;
use tonic::codegen::Service as _;

use super::request::{field_of, fields_in_path, id_field};
use super::*;
use crate::server::admin::ApiResult;
use crate::server::admin::access::BodyPart;

/// Methods that only gRPC has: a client stream, and what the socket of the machine serves.
const GRPC_ONLY: [&str; 2] = ["AudienceService/PutPart", "TokenService/ResetTokens"];
/// The HTTP requests as a file, beside the surface of the messages.
const SURFACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/tests/http.txt");

/// Returns the message that a request becomes.
async fn message<M: Message + Default>(verb: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> ApiResult<M> {
    let api = HttpJson::new(true).expect("the API");
    let request = headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
    let (head, ()) = request.body(()).expect("a request").into_parts();
    let (method, in_path) = api.find(verb, head.uri.path()).expect("a method");
    let query = head.uri.query().unwrap_or_default().to_owned();
    let call = HttpCall { method, in_path, query, is_csv: false, body: Arc::default() };
    let framed = request::messages(&call, &head.headers, Body::from(body.to_owned())).await?;
    let framed = framed.collect().await.expect("frames").to_bytes();
    Ok(M::decode(&framed[FRAME_HEAD..]).expect("a message"))
}

/// Returns the detail of the error that a request gets.
async fn refused(verb: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> String {
    let refused = message::<DeleteScheduleRequest>(verb, uri, headers, body).await;
    refused.map(|_| panic!("{verb} {uri} was taken")).unwrap_or_else(|error| error.to_string())
}

/// Returns the answer to a request by a server whose calls all succeed without a message.
async fn answer(request: Request) -> (StatusCode, axum::http::HeaderMap, Value) {
    let ok = || async { tonic::Status::ok("").into_http::<Body>() };
    let inner = Router::new().fallback(ok).layer(from_fn(by_message)).layer(from_fn(with_body));
    let api = Arc::new(HttpJson::new(true).expect("the API"));
    let mut server = Router::new().fallback_service(inner).layer(from_fn_with_state(api, by_path));
    let answer = server.call(request).await.expect("an answer");
    let (head, body) = answer.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    (head.status, head.headers, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn each_method_has_one_http_request_or_is_named_as_grpc_only() {
    let of_api = METHODS.iter().filter_map(|row| Some((row.path.strip_prefix("/reveille.admin.v1.")?, &row.http)));
    let without: Vec<&str> = of_api.filter(|(_, http)| http.is_none()).map(|(method, _)| method).collect();
    assert_eq!(without, GRPC_ONLY);
    let requests: Vec<_> =
        METHODS.iter().filter_map(|row| row.http.as_ref()).map(|http| (http.verb, http.path)).collect();
    assert_eq!(requests.iter().collect::<BTreeSet<_>>().len(), requests.len(), "a request twice");
}

#[test]
fn fields_of_table_are_fields_of_messages() {
    let api = HttpJson::new(true).expect("the API");
    for method in &api.methods {
        let input = method.method.input();
        let in_path = method.http.path.split('/').filter_map(field_of);
        for path in in_path {
            let first = path.split('.').next().unwrap_or_default();
            assert!(input.get_field_by_name(first).is_some(), "{} {path}", method.http.path);
        }
        if let BodyPart::Field(field) | BodyPart::Pieces(field) = method.http.body {
            assert!(input.get_field_by_name(field).is_some(), "{} {field}", method.http.path);
        }
    }
    let known = |name: &&str| api.methods.iter().any(|method| method.grpc_path.path().ends_with(*name));
    assert!(NON_IDEMPOTENT.iter().all(known), "a method that does not exist");
}

/// Returns a line for each HTTP request: its method, its body, and what an `Idempotency-Key` does.
fn surface() -> BTreeSet<String> {
    let api = HttpJson::new(true).expect("the API");
    let line = |method: &Arc<HttpMethod>| {
        let (input, HttpRequest { verb, path, body }) = (method.method.input(), method.http);
        let body = match body {
            BodyPart::None => String::new(),
            BodyPart::Whole => ", body".to_owned(),
            BodyPart::Field(field) | BodyPart::Pieces(field) => format!(", body {field}"),
        };
        let key = id_field(&input, !path.contains('{'));
        let key = match input.get_field_by_name(key) {
            _ if *verb == "GET" => String::new(),
            Some(_) => format!(", key {key}"),
            None if method.is_idempotent => ", key ignored".to_owned(),
            None => ", key refused".to_owned(),
        };
        let (service, name) = (method.method.parent_service().name().to_owned(), method.method.name());
        format!("{verb} {path} = {service}.{name}{body}{key}")
    };
    api.methods.iter().map(line).collect()
}

#[test]
fn http_surface_is_the_recorded_one() {
    let now = surface();
    if env::var_os("UPDATE_GOLDENFILES").is_some() {
        let lines: String = now.iter().map(|line| format!("{line}\n")).collect();
        fs::write(SURFACE, lines).expect("written");
    }
    let recorded: BTreeSet<String> =
        fs::read_to_string(SURFACE).expect("the file").lines().map(str::to_owned).collect();
    let gone: Vec<_> = recorded.difference(&now).collect();
    assert!(
        gone.is_empty(),
        "a released request may not change; until the release UPDATE_GOLDENFILES=1 records it: {gone:#?}"
    );
    let new: Vec<_> = now.difference(&recorded).collect();
    assert!(new.is_empty(), "UPDATE_GOLDENFILES=1 records what is new: {new:#?}");
}

#[test]
fn request_of_a_web_page_is_known_by_its_origin_and_host() {
    let of = |is_insecure, uri: &str, headers: &[(&str, &str)]| {
        let api = HttpJson::new(is_insecure).expect("the API");
        let request = headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        api.is_of_web_page(&request.body(Body::empty()).expect("a request"))
    };
    assert!(of(false, "/v1/runs", &[("host", "node-1.example.com"), ("origin", "null")]));
    assert!(!of(false, "/v1/runs", &[("host", "node-1.example.com")]), "it has a token, which no page knows");
    assert!(of(true, "/v1/runs", &[("host", "rebound.example.com:7600")]));
    assert!(of(true, "http://rebound.example.com:7600/v1/runs", &[]), "HTTP/2");
    for host in ["127.0.0.1:7600", "localhost:7600", "[::1]:7600"] {
        assert!(!of(true, "/v1/runs", &[("host", host)]), "{host}");
    }
}

#[test]
fn path_gives_fields_and_first_row_wins() {
    let fields = |template, path| fields_in_path(template, path);
    assert_eq!(fields("/v1/runs/{run}", "/v1/runs/a%40b%2Fc"), Some(vec![("run", "a@b/c".to_owned())]));
    assert_eq!(fields("/v1/runs/{run}", "/v1/runs/"), None);
    assert_eq!(fields("/v1/runs/{run}", "/v1/runs/a/b"), None);
    assert_eq!(fields("/v1/runs/{run}", "/v1/runs/%ff"), None, "no UTF-8");
    let api = HttpJson::new(true).expect("the API");
    let found = |verb: &str, path: &str| api.find(verb, path).map(|(found, _)| found.method.name().to_owned());
    assert_eq!(found("GET", "/v1/tokens/self").as_deref(), Ok("GetOwnToken"));
    assert_eq!(found("DELETE", "/v1/tokens/self").as_deref(), Ok("RevokeToken"));
    assert_eq!(found("PUT", "/v1/runs"), Err(vec!["GET"]));
    assert_eq!(found("GET", "/v2/runs"), Err(Vec::new()));
}

/// OpenAPI: paths that differ only in the names of their parameters are identical, and must not both exist.
#[test]
fn description_has_each_templated_path_once() {
    let document = openapi::document(&HttpJson::new(true).expect("the API").methods);
    let paths = document["paths"].as_object().expect("paths");
    let shape =
        |path: &str| path.split('/').map(|part| field_of(part).map_or(part, |_| "{}")).collect::<Vec<_>>().join("/");
    let shapes: BTreeSet<String> = paths.keys().map(|path| shape(path)).collect();
    assert_eq!(shapes.len(), paths.len(), "{:?}", paths.keys());
    let schedule = paths["/v1/schedules/{name}"].as_object().expect("verbs");
    assert_eq!(schedule.keys().collect::<Vec<_>>(), ["delete", "get", "patch", "put"]);
    for (path, operation) in
        paths.iter().flat_map(|(path, verbs)| verbs.as_object().expect("verbs").values().map(move |one| (path, one)))
    {
        let named = operation["parameters"].as_array().expect("parameters").iter().filter(|one| one["in"] == "path");
        let named: BTreeSet<_> = named.map(|one| one["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(named, path.split('/').filter_map(field_of).collect(), "{path}");
    }
}

/// The default style of OpenAPI would send the fields of an object without its name.
#[test]
fn description_names_each_inner_field_of_a_query() {
    let document = openapi::document(&HttpJson::new(true).expect("the API").methods);
    let operations = document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .flat_map(|verbs| verbs.as_object().expect("verbs").values());
    let in_query = |operation: &Value| -> Vec<(String, Value)> {
        let all = operation["parameters"].as_array().expect("parameters").iter().filter(|one| one["in"] == "query");
        all.map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), one["schema"].clone())).collect()
    };
    for (name, schema) in operations.flat_map(in_query) {
        let is_enum_or_plain = schema["type"].is_string() && schema["items"]["$ref"].is_null();
        assert!(is_enum_or_plain, "{name}: {schema}");
    }
    let letters = in_query(&document["paths"]["/v1/runs/{run}/dead-letters"]["get"]);
    let of_filter: Vec<&str> =
        letters.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("filter")).collect();
    assert_eq!(of_filter[..2], ["filter.schedule", "filter.sinceTime"]);
    assert!(of_filter.contains(&"filter.reason.code") && !of_filter.contains(&"filter.reason"), "{of_filter:?}");
}

#[tokio::test]
async fn field_mask_names_fields_in_both_forms_and_keeps_keys_of_labels() {
    let mask = "labels.costCenter,labels.cost_center,labels.Team,maxRuns,start_time,content.replyTo,\
        policies.finish_by,timing.every.anchorTime,labels,nothing.At";
    let uri = format!("/v1/schedules/lab?updateMask={mask}");
    let body = r#"{"labels": {"costCenter": "NEW"}}"#;
    let update: UpdateScheduleRequest = message("PATCH", &uri, &[], body).await.expect("a request");
    let expected = [
        "labels.costCenter",
        "labels.cost_center",
        "labels.Team",
        "max_runs",
        "start_time",
        "content.reply_to",
        "policies.finish_by",
        "timing.every.anchor_time",
        "labels",
        "nothing.At",
    ];
    assert_eq!(update.update_mask.expect("a mask").paths, expected);
    assert_eq!(update.schedule.expect("a schedule").labels["costCenter"], "NEW");
}

#[tokio::test]
async fn key_is_a_field_or_ignored_or_refused() {
    let key = ("Idempotency-Key", "k");
    let sent: SendMessageRequest = message("POST", "/v1/messages", &[key], "{}").await.expect("a request");
    assert_eq!(sent.key, "k");
    let update: UpdateScheduleRequest = message("PATCH", "/v1/schedules/lab", &[key], "{}").await.expect("a request");
    assert_eq!(update.request_id, "k");
    let delete: DeleteScheduleRequest = message("DELETE", "/v1/schedules/lab", &[key], "").await.expect("a request");
    assert_eq!(delete.name, "lab", "its repeat leaves the same state");
    for uri in ["/v1/tokens", "/v1/clock/advance", "/v1/runs/r1.0/resume"] {
        let verb = "POST";
        let said = refused(verb, uri, &[key], "{}").await;
        assert!(said.starts_with("idempotency-key: is given, but this request keeps no key"), "{uri}: {said}");
    }
    for (verb, uri) in [("POST", "/v1/messages"), ("PATCH", "/v1/schedules/lab"), ("DELETE", "/v1/schedules/lab")] {
        for empty in ["", " ", "\"\"", "\" \""] {
            let said = refused(verb, uri, &[("Idempotency-Key", empty)], "").await;
            assert!(said.starts_with("idempotency-key: is empty"), "{uri} {empty:?}: {said}");
        }
    }
    let said = refused("POST", "/v1/messages", &[key, ("Idempotency-Key", "other")], "{}").await;
    assert_eq!(said, "idempotency-key: is given twice; give it once");
}

#[tokio::test]
async fn null_is_no_value() {
    let key = ("Idempotency-Key", "k");
    let sent: SendMessageRequest =
        message("POST", "/v1/messages", &[key], r#"{"key": null}"#).await.expect("a request");
    assert_eq!(sent.key, "k");
    let cancel: CancelMessageRequest =
        message("POST", "/v1/messages/k/cancel", &[], r#"{"key": null}"#).await.expect("a request");
    assert_eq!(cancel.key, "k");
}

#[tokio::test]
async fn body_has_a_bounded_number_of_values() {
    let recipients = "{},".repeat(500_001);
    let body = format!(r#"{{"key": "k", "audience": {{"recipients": [{recipients}{{}}]}}}}"#);
    let said = refused("POST", "/v1/messages", &[], &body).await;
    assert!(said.starts_with("the body has more than 500000 values"), "{said}");
    let said = refused("GET", "/v1/runs", &[], "no JSON").await;
    assert_eq!(said, "body: is given, but this request has none");
    let twice = r#"{"policies": {"maxAttempts": 1, "maxAttempts": 2}}"#;
    let said = refused("POST", "/v1/schedules", &[], twice).await;
    assert!(said.starts_with("body: has the key \"maxAttempts\" twice at line 1"), "{said}");
}

#[tokio::test]
async fn field_in_both_spellings_is_refused_at_any_depth() {
    for (uri, body, path) in [
        ("/v1/messages", r#"{"sendTime": "2027-01-01T00:00:00Z", "send_time": "2026-01-01T00:00:00Z"}"#, "send_time"),
        ("/v1/messages", r#"{"send_time": "2027-01-01T00:00:00Z", "sendTime": null}"#, "send_time"),
        ("/v1/schedules", r#"{"policies": {"max_attempts": 1, "maxAttempts": 2}}"#, "schedule.policies.max_attempts"),
        (
            "/v1/schedules/batch",
            r#"{"schedules": [{}, {"content": {"replyTo": "a@b.c", "reply_to": "d@e.f"}}]}"#,
            "schedules[1].content.reply_to",
        ),
    ] {
        let said = refused("POST", uri, &[], body).await;
        assert!(said.starts_with(&format!("{path}: is given twice")), "{body}: {said}");
    }
    let label = r#"{"labels": {"max_runs": "1", "maxRuns": "2"}}"#;
    message::<reveille_proto::admin::v1::CreateScheduleRequest>("POST", "/v1/schedules", &[], label)
        .await
        .expect("keys of labels are no fields");
}

#[tokio::test]
async fn value_that_does_not_fit_is_named_by_its_path() {
    for (verb, uri, body, path) in [
        ("GET", "/v1/runs?pageSize=many", "", "page_size"),
        ("GET", "/v1/runs/-/dead-letters?filter.sinceTime=now", "", "filter.since_time"),
        ("POST", "/v1/schedules", r#"{"nmae": "x"}"#, "schedule.nmae"),
        ("POST", "/v1/schedules", r#"{"maxRuns": "x", "name": "n"}"#, "schedule.maxRuns"),
        ("POST", "/v1/schedules", r#"{"policies": {"overlap": "X"}}"#, "schedule.policies.overlap"),
        ("POST", "/v1/schedules", r#"{"labels": {"a": "b", "c.d": 7}}"#, "schedule.labels.c.d"),
        ("POST", "/v1/schedules", r#"{"startTime": "soon"}"#, "schedule.startTime"),
        ("POST", "/v1/messages", r#"{"key": "k", "to": ["a@b.c", 7]}"#, "to[1]"),
        (
            "POST",
            "/v1/messages",
            r#"{"audience": {"recipients": [{"address": "a@b.c"}, {"values": ["x", {}]}]}}"#,
            "audience.recipients[1].values[1]",
        ),
        ("POST", "/v1/schedules", r#"{"timing": {"cron": "@daily", "every": {"period": "60s"}}}"#, "schedule.timing"),
        ("POST", "/v1/messages", "[]", "body"),
    ] {
        let said = refused(verb, uri, &[], body).await;
        assert!(said.starts_with(&format!("{path}: ")), "{uri} {body}: {said}");
    }
}

#[tokio::test]
async fn condition_is_an_etag_or_refused_and_never_ignored() {
    let put = "/v1/templates/w";
    for (name, value, etag) in [
        ("If-Match", "\"12\"", "12"),
        ("If-Match", "12", "12"),
        ("If-Match", "*", "*"),
        ("If-None-Match", "*", "0"),
        ("If-Modified-Since", "Sat, 28 Nov 2026 16:00:00 GMT", ""),
    ] {
        let request: PutTemplateRequest = message("PUT", put, &[(name, value)], "{}").await.expect("a request");
        assert_eq!(request.etag, etag, "{name}: {value}");
    }
    for (verb, uri, headers) in [
        ("PUT", put, &[("If-Match", "W/\"12\"")][..]),
        ("PUT", put, &[("If-Match", "")]),
        ("PUT", put, &[("If-Match", "\"\"")]),
        ("PUT", put, &[("If-Match", "\"12\", \"13\"")]),
        ("PUT", put, &[("If-Match", "\"12\""), ("If-Match", "\"13\"")]),
        ("PUT", put, &[("If-None-Match", "\"12\"")]),
        ("PUT", put, &[("If-Match", "\"12\""), ("If-None-Match", "*")]),
        ("PATCH", "/v1/schedules/lab", &[("If-None-Match", "*")]),
        ("DELETE", "/v1/tokens/self", &[("If-Match", "*")]),
        ("GET", "/v1/runs", &[("If-Match", "\"12\"")]),
    ] {
        let said = refused(verb, uri, headers, "").await;
        assert!(said.starts_with("if-"), "{headers:?}: {said}");
    }
    let read = [("If-None-Match", "\"12\"")];
    let read: ListDoubtsRequest =
        message("GET", "/v1/runs/-/doubts", &read, "").await.expect("it only spares the answer");
    assert_eq!(read.run, "-");
}

#[tokio::test]
async fn every_refusal_is_a_problem_with_a_reason() {
    let encoded = ("content-encoding", "gzip");
    let plain = ("content-encoding", "identity");
    for (verb, uri, headers, status, reason) in [
        ("GET", "/v1/nothing", &[][..], StatusCode::NOT_FOUND, "NO_SUCH_CALL"),
        ("PUT", "/v1/runs", &[], StatusCode::METHOD_NOT_ALLOWED, "NO_SUCH_CALL"),
        ("GET", "/v1/runs", &[("origin", "null")], StatusCode::FORBIDDEN, "NOT_PERMITTED"),
        ("POST", "/v1/audience-parts", &[encoded], StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_ENCODING"),
        ("POST", "/v1/messages", &[encoded], StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_ENCODING"),
        // The server of this test answers without a message.
        ("POST", "/v1/messages", &[plain], StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
    ] {
        let request = Request::builder().method(verb).uri(uri);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (got, headers, problem) = answer(request.body(Body::from("{}")).expect("a request")).await;
        assert_eq!((got, problem["reason"].as_str()), (status, Some(reason)), "{verb} {uri}: {problem}");
        assert_eq!(problem["status"], status.as_u16(), "{problem}");
        let accepts = headers.get(header::ACCEPT_ENCODING).map(HeaderValue::as_bytes);
        assert_eq!(accepts.is_some(), status == StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
}

#[tokio::test]
async fn error_of_the_library_at_the_end_is_a_problem_with_a_reason() {
    let mut trailers = axum::http::HeaderMap::new();
    tonic::Status::out_of_range("message length too large").add_header(&mut trailers).expect("trailers");
    let body = http_body_util::Empty::<Bytes>::new().with_trailers(async move { Some(Ok(trailers)) });
    let api = HttpJson::new(true).expect("the API");
    let (method, in_path) = api.find("GET", "/v1/templates").expect("a method");
    let call = HttpCall { method, in_path, query: String::new(), is_csv: false, body: Arc::default() };
    let answer = response::of_call(&call, Response::new(Body::new(body))).await;
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let problem = answer.into_body().collect().await.expect("a body").to_bytes();
    let problem: Value = serde_json::from_slice(&problem).expect("JSON");
    assert_eq!(problem["reason"], "INTERNAL", "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.ends_with("message length too large")), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn body_that_does_not_come_is_refused_and_its_connection_closed() {
    let drip = || {
        tokio_stream::iter(std::iter::repeat(())).then(|()| async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok::<Bytes, Infallible>(Bytes::from_static(b" "))
        })
    };
    let begun = tokio::time::Instant::now();
    for (version, body) in [
        (Version::HTTP_11, Body::from_stream(tokio_stream::pending::<Result<Bytes, Infallible>>())),
        (Version::HTTP_11, Body::from_stream(drip())),
        (Version::HTTP_2, Body::from_stream(drip())),
    ] {
        let request = Request::post("/v1/messages").version(version).body(body).expect("a request");
        let (status, headers, problem) = answer(request).await;
        assert_eq!((status, &problem["reason"]), (StatusCode::REQUEST_TIMEOUT, &Value::from("BODY_TIMED_OUT")));
        assert_eq!(headers.contains_key(header::CONNECTION), version == Version::HTTP_11, "{headers:?}");
    }
    let request = Request::post("/v1/nothing").body(Body::from_stream(drip())).expect("a request");
    assert_eq!(answer(request).await.0, StatusCode::NOT_FOUND);
    let longest = crate::server::admin::deadline::LONGEST;
    assert!(begun.elapsed() < 4 * longest, "each is answered before `listen` says that it may have happened");
}
