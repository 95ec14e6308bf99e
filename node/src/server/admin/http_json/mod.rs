//! The HTTP form of the API: JSON on the same port, with the same tokens and limits as gRPC.
//!
//! It translates, and decides nothing. [`by_path`] comes first: it finds the method of a request by verb and path
//! ([`METHODS`]), and gives it the path of the gRPC method. So authentication, the table of rights and all limits are
//! those of gRPC. [`by_message`] comes last: it reads the body, and replaces it by the message in protobuf
//! ([`request`]). On the way back the answer becomes canonical JSON of protobuf, or a problem of RFC 9457
//! ([`response`]).
//!
//! Web pages are no clients: a request with an `Origin` is refused, and without tokens also one for a host by another
//! name than `localhost`. Otherwise any page in a browser on the machine could call a node of `reveille dev`.
//!
//! The descriptors of the API are the only source: a new field or method needs at most a row in [`METHODS`].

mod decode;
mod openapi;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod unique_keys;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use prost_reflect::{DescriptorPool, MethodDescriptor};
use reveille_proto::DESCRIPTORS;

use super::access::{HttpRequest, METHODS, NON_IDEMPOTENT};
use request::FieldsInPath;

/// The description of the API. It needs no token, since it is the same for every cluster.
const OPENAPI: &str = "/v1/openapi.json";
/// Length of the frame's head before a message of gRPC: a flag and the length.
const FRAME_HEAD: usize = 5;
/// Start of the content type of gRPC.
const GRPC: &str = "application/grpc";

/// The HTTP form of the API.
pub struct HttpJson {
    methods: Vec<Arc<HttpMethod>>,
    /// Made when it is first read.
    openapi: OnceLock<String>,
    /// True if calls need no token.
    is_insecure: bool,
}

/// The HTTP request of a row of [`METHODS`], with its method.
struct HttpMethod {
    http: &'static HttpRequest,
    method: MethodDescriptor,
    grpc_path: Uri,
    /// False if its repeat may do more than one call ([`NON_IDEMPOTENT`]).
    is_idempotent: bool,
}

/// The HTTP request that became a call.
#[derive(Clone)]
struct HttpCall {
    method: Arc<HttpMethod>,
    /// Fields in the path, and their values.
    in_path: FieldsInPath,
    /// Fields in the query, and their values.
    query: String,
    /// True if the answer is to be CSV.
    is_csv: bool,
    /// The body, until it is read.
    body: Arc<Mutex<Option<Body>>>,
}

impl HttpMethod {
    /// True if it streams rows that can be CSV too.
    fn is_export(&self) -> bool {
        self.method.name().starts_with("Export")
    }
}

impl HttpJson {
    /// Reads the descriptors that are built in.
    ///
    /// # Errors
    /// If they do not decode, or lack a method of the table.
    pub fn new(is_insecure: bool) -> Result<HttpJson, Box<dyn std::error::Error + Send + Sync>> {
        let pool = DescriptorPool::decode(DESCRIPTORS)?;
        let methods = METHODS.iter().filter_map(|row| Some((row.path, row.http.as_ref()?))).map(|(path, http)| {
            let (service, name) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
            let service = pool.get_service_by_name(service);
            let method = service.and_then(|service| service.methods().find(|known| known.name() == name));
            Ok(Arc::new(HttpMethod {
                http,
                method: method.ok_or_else(|| format!("no method {path} in the API"))?,
                grpc_path: path.parse()?,
                is_idempotent: !NON_IDEMPOTENT.iter().any(|known| path.ends_with(known)),
            }))
        });
        let methods = methods.collect::<Result<Vec<_>, Box<dyn std::error::Error + Send + Sync>>>()?;
        Ok(HttpJson { methods, openapi: OnceLock::new(), is_insecure })
    }

    /// True if a web page in a browser may have sent the request.
    fn is_of_web_page(&self, request: &Request) -> bool {
        if request.headers().contains_key(header::ORIGIN) {
            return true;
        }
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let Some(host) = request.uri().authority().cloned().or(host) else { return false };
        let host = host.host().trim_matches(['[', ']']);
        self.is_insecure && host != "localhost" && host.parse::<IpAddr>().is_err()
    }

    /// Finds the method of a request, and the fields in its path.
    ///
    /// # Errors
    /// Returns the verbs of this path; none if there is no such path.
    fn find(&self, verb: &str, path: &str) -> Result<(Arc<HttpMethod>, FieldsInPath), Vec<&'static str>> {
        let mut verbs = Vec::new();
        for method in &self.methods {
            // What stands before the first field excludes almost all methods at once.
            let is_near = path.starts_with(method.http.path.split('{').next().unwrap_or_default());
            if is_near && let Some(fields) = request::fields_in_path(method.http.path, path) {
                if method.http.verb == verb {
                    return Ok((Arc::clone(method), fields));
                }
                verbs.push(method.http.verb);
            }
        }
        Err(verbs)
    }
}

/// The outer layer: turns an HTTP request into a call of gRPC whose body is still JSON, and the answer into JSON. Calls
/// of gRPC pass unchanged.
pub async fn by_path(State(api): State<Arc<HttpJson>>, mut request: Request, next: Next) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    // gRPC needs HTTP/2, which browsers do not use without TLS. So no web page passes here.
    if request.version() == Version::HTTP_2 && kind.is_some_and(|kind| kind.starts_with(GRPC.as_bytes())) {
        return next.run(request).await;
    }
    if api.is_of_web_page(&request) {
        request::discard(request.into_body()).await;
        return response::of_web_page();
    }
    if request.method() == Method::HEAD {
        *request.method_mut() = Method::GET;
        return answer(api, request, next).await.map(|_| Body::empty());
    }
    answer(api, request, next).await
}

async fn answer(api: Arc<HttpJson>, request: Request, next: Next) -> Response {
    if request.uri().path() == OPENAPI && request.method() == Method::GET {
        let document = api.openapi.get_or_init(|| openapi::document(&api.methods).to_string());
        return ([(header::CONTENT_TYPE, "application/json")], document.clone()).into_response();
    }
    let (method, in_path) = match api.find(request.method().as_str(), request.uri().path()) {
        Ok(found) => found,
        Err(verbs) => {
            request::discard(request.into_body()).await;
            return response::not_found(&verbs);
        }
    };
    let is_http1 = request.version() < Version::HTTP_2;
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (head, body) = request.into_parts();
    let body = Arc::new(Mutex::new(Some(body)));
    let mut request = Request::from_parts(head, Body::empty());
    let is_csv = response::prefers_csv(request.headers());
    *request.uri_mut() = method.grpc_path.clone();
    let call = HttpCall { method, in_path, query, is_csv, body };
    *request.method_mut() = Method::POST;
    request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    request.extensions_mut().insert(call.clone());
    let answer = next.run(request).await;
    // A call that is refused by its token has not been read.
    let unread = call.body.lock().take();
    if let Some(body) = unread {
        request::discard(body).await;
    }
    let mut response = response::of_call(&call, answer).await;
    if response.status() == StatusCode::REQUEST_TIMEOUT && is_http1 {
        // The rest of the body may still come, and would be taken for the next request.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The layer below authentication: gives the request its body back, so that its memory is counted like that of gRPC.
pub async fn with_body(mut request: Request, next: Next) -> Response {
    let body = request.extensions().get::<HttpCall>().and_then(|call| call.body.lock().take());
    if let Some(body) = body {
        *request.body_mut() = body;
    }
    next.run(request).await
}

/// The inner layer: replaces the body of an HTTP request by the message of the call.
pub async fn by_message(mut request: Request, next: Next) -> Response {
    let Some(call) = request.extensions_mut().remove::<HttpCall>() else { return next.run(request).await };
    let (mut head, body) = request.into_parts();
    match request::messages(&call, &head.headers, body).await {
        Ok(messages) => {
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
            head.headers.remove(header::CONTENT_LENGTH);
            next.run(Request::from_parts(head, messages)).await
        }
        Err(refused) => tonic::Status::from(refused).into_http(),
    }
}
