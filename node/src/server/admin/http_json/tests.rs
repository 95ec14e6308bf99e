//! Tests of the table and of the translation. `node/tests/node/http_json.rs` calls a real node.

use std::collections::BTreeSet;

use super::request::{field_of, fields_in_path};
use super::routes::GRPC_ONLY;
use super::*;
use crate::server::admin::access::ACCESS;

#[test]
fn each_method_has_one_http_request_or_is_named_as_grpc_only() {
    let of_api = ACCESS.iter().filter_map(|row| row.path.strip_prefix("/reveille.admin.v1."));
    let of_http: Vec<&str> = HTTP_ROWS.iter().map(|row| row.method).chain(GRPC_ONLY).collect();
    let distinct: BTreeSet<&str> = of_http.iter().copied().collect();
    assert_eq!(distinct.len(), of_http.len(), "a method twice");
    assert_eq!(distinct, of_api.collect());
    let requests: BTreeSet<_> = HTTP_ROWS.iter().map(|row| (row.verb, row.path)).collect();
    assert_eq!(requests.len(), HTTP_ROWS.len(), "a request twice");
}

#[test]
fn fields_of_table_are_fields_of_messages() {
    let api = HttpJson::new(true).expect("the API");
    for method in &api.methods {
        let input = method.method.input();
        let in_path = method.path.split('/').filter_map(field_of);
        for path in in_path {
            let first = path.split('.').next().unwrap_or_default();
            assert!(input.get_field_by_name(first).is_some(), "{} {path}", method.path);
        }
        if let BodyPart::Field(field) | BodyPart::Pieces(field) = method.body {
            assert!(input.get_field_by_name(field).is_some(), "{} {field}", method.path);
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
