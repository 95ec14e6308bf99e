//! Tests of the table and of the translation. `node/tests/node/http_json.rs` calls a real node.

use std::collections::BTreeSet;

use super::request::{field_of, fields_in_path};
use super::*;
use crate::server::admin::access::BodyPart;

/// Methods that only gRPC has: a client stream, and what the socket of the machine serves.
const GRPC_ONLY: [&str; 2] = ["AudienceService/PutPart", "TokenService/ResetTokens"];

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
    let found =
        |verb: &str, path: &str| api.find(verb, path).map(|(index, _)| api.methods[index].method.name().to_owned());
    assert_eq!(found("GET", "/v1/tokens/self").as_deref(), Ok("GetOwnToken"));
    assert_eq!(found("DELETE", "/v1/tokens/self").as_deref(), Ok("RevokeToken"));
    assert_eq!(found("PUT", "/v1/runs"), Err(vec!["GET"]));
    assert_eq!(found("GET", "/v2/runs"), Err(Vec::new()));
}
