//! Tokens over the API: which calls they permit, what they see of other tenants, and how they end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use prost::Message as _;
use prost::bytes::Bytes;
use reveille_ledger::command::{Actor, Command};
use reveille_ledger::ids::TokenId;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::token::{Rights, TenantScope, TokenCreate, TokenGrant};
use reveille_proto::admin::v1::run_service_client::RunServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::token_service_client::TokenServiceClient;
use reveille_proto::admin::v1::{
    AddOptOutRequest, CountDeadLettersRequest, CountDeadLettersResponse, CreateTokenRequest, GetOwnTokenRequest,
    GetScheduleRequest, ListSchedulesRequest, ListTokensRequest, PutTemplateRequest, ResetTokensRequest,
    RevokeTokenRequest, Role, ScheduleBody, SendMessageRequest, TriggerScheduleRequest, UpdateScheduleRequest,
    WatchRunRequest,
};
use tokio::net::{TcpListener, UnixStream};
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tonic::client::Grpc;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::harness::{Node, STEP_TIMEOUT, creation, node, reason, yearly};
use crate::cli::bytes_codec::BytesCodec;
use crate::server::admin::access::tests::{Method, field, methods};
use crate::server::admin::access::{METHODS, ROLES, Reach};
use crate::server::admin::{Admin, serve, serve_local, socket_path};
use crate::token_text::TokenText;

/// Every name and address of the other tenant contains it.
const CANARY: &str = "zebra";

/// Returns the address of a listener that needs tokens, beside the open one of the node.
pub(super) async fn locked_address(node: &Node) -> SocketAddr {
    address_of(Admin::new(node.shared_context())).await
}

pub(super) async fn address_of(admin: Admin) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(admin, listener, None, CancellationToken::new()));
    address
}

/// A listener that needs tokens, beside the open one of the node.
pub(super) async fn locked(node: &Node) -> Channel {
    connected(locked_address(node).await).await
}

pub(super) async fn connected(address: SocketAddr) -> Channel {
    let channel = Channel::from_shared(format!("http://{address}")).expect("an address").timeout(STEP_TIMEOUT);
    channel.connect().await.expect("a connection")
}

pub(super) fn role(name: &str) -> Rights {
    let role = Role::from_str_name(&format!("ROLE_{}", name.to_uppercase()));
    ROLES.iter().find(|(known, _)| Some(*known) == role).expect("a role").1
}

pub(super) fn only(tenant: &str) -> TenantScope {
    TenantScope::Only([tenant.to_owned()].into())
}

pub(super) async fn token(node: &Node, rights: Rights, tenants: TenantScope) -> TokenText {
    let token = TokenText::generate();
    let grant = TokenGrant { name: "test".to_owned(), hash: token.hash(), rights, tenants, expires_at: None };
    let create = TokenCreate { id: token.id, grant, revokes: Rights::default() };
    let command = Command::TokenCreate(Box::new(create));
    let reply = node.context().replica.propose(&command, Instant::now() + STEP_TIMEOUT).await.expect("an answer");
    assert_eq!(reply.outcome, CommandOutcome::Done);
    token
}

pub(super) fn with<T>(message: T, token: &TokenText) -> Request<T> {
    let mut request = Request::new(message);
    let header = format!("Bearer {token}").parse().expect("a header");
    request.metadata_mut().insert("authorization", header);
    request
}

/// Calls a method of any kind, and returns the first message of its response.
async fn call(channel: &Channel, path: &str, message: Vec<u8>, token: Option<&TokenText>) -> Result<Bytes, Status> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("a connection");
    let path = PathAndQuery::try_from(path).expect("a path");
    let mut request = Request::new(tokio_stream::once(Bytes::from(message)));
    if let Some(token) = token {
        request = with(request.into_inner(), token);
    }
    let mut response = grpc.streaming(request, path, BytesCodec).await?.into_inner();
    Ok(response.message().await?.unwrap_or_default())
}

/// Encodes a field that is a text or a message.
fn encoded(number: i32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(u64::from(number as u32) << 3 | 2, &mut bytes);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

/// Encodes a message that names this tenant, and nothing else.
fn naming(method: &Method, tenant: &str) -> Vec<u8> {
    if tenant.is_empty() {
        return Vec::new();
    }
    let message = method.message.as_str();
    if message == "GetTenantRequest" {
        return encoded(field(message, "name").expect("a field"), tenant.as_bytes());
    }
    if let Some(number) = field(message, "tenant") {
        return encoded(number, tenant.as_bytes());
    }
    let body = encoded(field("ScheduleBody", "tenant").expect("a field"), tenant.as_bytes());
    let number = field(message, "schedule").or_else(|| field(message, "schedules"));
    number.map(|number| encoded(number, &body)).unwrap_or_default()
}

fn refused(status: &Status) -> bool {
    matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
}

/// The table is the oracle: each role, for one tenant or all, calls each method about its own tenant, another one and
/// none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_may_call_what_the_table_says() {
    let node = node("").await;
    let channel = locked(&node).await;
    for (name, rights) in ROLES {
        for tenants in [only("acme"), TenantScope::All] {
            let token = token(&node, *rights, tenants.clone()).await;
            for method in methods() {
                let row = METHODS.iter().find(|row| row.path == method.path).expect("a row");
                for tenant in ["acme", CANARY, ""] {
                    let named = if tenant.is_empty() { "default" } else { tenant };
                    let reaches = match row.reach {
                        Reach::Open | Reach::NoTenant => true,
                        Reach::Tenant => tenants.includes(Some(named)),
                        Reach::Cluster => tenants == TenantScope::All,
                        Reach::Local => false,
                    };
                    let called = call(&channel, row.path, naming(&method, tenant), Some(&token)).await;
                    let what = format!("{} by {name:?} of {tenants:?} about {named}: {called:?}", row.path);
                    match called {
                        Err(status) if refused(&status) => {
                            assert!(!(rights.contains(row.needs) && reaches), "{what}");
                            let expected = (Code::PermissionDenied, "NOT_PERMITTED".to_owned());
                            assert_eq!(reason(&status), expected, "{what}");
                            assert!(!status.message().contains(CANARY), "{what}");
                        }
                        _ => assert!(rights.contains(row.needs) && reaches, "{what}"),
                    }
                }
            }
        }
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_without_valid_token_learns_nothing() {
    let node = node("").await;
    let channel = locked(&node).await;
    let none_yet = call(&channel, METHODS[9].path, Vec::new(), None).await.expect_err("no tokens are known");
    assert_eq!(none_yet.code(), Code::Unavailable, "{none_yet:?}");
    let known = token(&node, role("admin"), TenantScope::All).await;
    let unknown = TokenText::generate();
    let mut other_secret = TokenText::generate();
    other_secret.id = known.id;
    let paths = methods().into_iter().map(|method| method.path);
    for path in paths.chain(["/reveille.admin.v1.RunService/NoSuchMethod", "/nothing"].map(str::to_owned)) {
        for token in [None, Some(&unknown), Some(&other_secret)] {
            let status = call(&channel, &path, Vec::new(), token).await.expect_err("refused");
            assert_eq!(reason(&status), (Code::Unauthenticated, "TOKEN_NOT_VALID".to_owned()), "{path}: {status:?}");
        }
    }
    let denied = call(&channel, "/reveille.admin.v1.RunService/NoSuchMethod", Vec::new(), Some(&known)).await;
    assert_eq!(denied.expect_err("not in the table").code(), Code::PermissionDenied);
    call(&channel, "/grpc.health.v1.Health/Check", Vec::new(), None).await.expect("health is open");
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    assert_eq!(call(&channel, reflection, Vec::new(), None).await.expect_err("closed").code(), Code::Unauthenticated);
    let reflected = call(&channel, reflection, Vec::new(), Some(&known)).await.expect_err("it names nothing");
    assert_eq!(reflected.code(), Code::InvalidArgument, "it was permitted");
    node.stop().await;
}

/// A program that has a token elsewhere works against `reveille dev` unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_is_ignored_where_none_exists_and_none_is_needed() {
    let node = node("").await;
    let (path, unknown) = ("/reveille.admin.v1.ScheduleService/ListSchedules", TokenText::generate());
    call(&node.channel, path, Vec::new(), Some(&unknown)).await.expect("ignored");
    token(&node, role("admin"), TenantScope::All).await;
    let refused = call(&node.channel, path, Vec::new(), Some(&unknown)).await.expect_err("now there are some");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_is_created_listed_and_revoked() {
    let node = node("").await;
    let channel = locked(&node).await;
    let admin = token(&node, role("admin"), TenantScope::All).await;
    let mut tokens = TokenServiceClient::new(channel.clone());
    let request = CreateTokenRequest {
        name: "deploy".to_owned(),
        roles: [Role::Editor, Role::Pii].map(i32::from).into(),
        tenants: vec!["acme".to_owned()],
        valid_for: Some(prost_types::Duration { seconds: 3_600, nanos: 0 }),
        ..CreateTokenRequest::default()
    };
    let created = tokens.create_token(with(request, &admin)).await.expect("created").into_inner();
    let (secret, shown) = (created.secret.clone(), created.token.clone().expect("a token"));
    assert_eq!(
        (shown.roles().collect::<Vec<_>>(), shown.valid, shown.created_by.clone()),
        (vec![Role::Pii, Role::Editor], true, admin.id.to_string())
    );
    assert!(!format!("{created:?}").contains(secret.rsplit('_').nth(1).expect("a secret")), "{created:?}");
    let deploy: TokenText = secret.parse().expect("a token");
    let list = |tenant: &str| ListSchedulesRequest { tenant: tenant.to_owned(), ..ListSchedulesRequest::default() };
    let mut schedules = ScheduleServiceClient::new(channel.clone());
    schedules.list_schedules(with(list("acme"), &deploy)).await.expect("permitted");
    schedules.list_schedules(with(list(""), &deploy)).await.expect_err("the default tenant is another one");

    let own = tokens.get_own_token(with(GetOwnTokenRequest {}, &deploy)).await.expect("a token").into_inner();
    let cluster = node.context().replica.cluster().expect("a cluster").to_string();
    assert_eq!((own.token.map(|token| token.id), own.cluster), (Some(shown.id.clone()), cluster));
    let insecure = TokenServiceClient::new(node.channel.clone()).get_own_token(GetOwnTokenRequest {}).await;
    assert_eq!(insecure.expect("no token is needed").into_inner().token, None);

    let listed = tokens.list_tokens(with(ListTokensRequest::default(), &admin)).await.expect("a list").into_inner();
    assert_eq!(listed.tokens.len(), 2);
    let revoke = RevokeTokenRequest { id: shown.id };
    tokens.revoke_token(with(revoke.clone(), &admin)).await.expect("revoked");
    tokens.revoke_token(with(revoke, &admin)).await.expect("a repeat");
    let ended = schedules.list_schedules(with(list("acme"), &deploy)).await.expect_err("revoked");
    assert_eq!(ended.code(), Code::Unauthenticated);
    let unknown = RevokeTokenRequest { id: "x".to_owned() };
    let unknown = tokens.revoke_token(with(unknown, &admin)).await.expect_err("no such token");
    assert_eq!(reason(&unknown), (Code::NotFound, "TOKEN_NOT_FOUND".to_owned()));
    for (roles, tenants, all_tenants) in
        [(vec![], vec![], true), (vec![0], vec![], true), (vec![99], vec![], true), (vec![1], vec![], false)]
    {
        let request = CreateTokenRequest { name: "x".into(), roles, tenants, all_tenants, ..Default::default() };
        let invalid = tokens.create_token(with(request, &admin)).await.expect_err("invalid");
        assert_eq!(invalid.code(), Code::InvalidArgument, "{invalid:?}");
    }
    node.stop().await;
}

/// Connects to the socket of this machine.
async fn local(node: &Node) -> Channel {
    let folder = node.folder.path().to_owned();
    let (admin, stop) = (Admin::new(node.shared_context()), CancellationToken::new());
    let path = socket_path(&folder);
    tokio::spawn(async move { serve_local(admin, &folder, stop).await });
    let end = Instant::now() + STEP_TIMEOUT;
    while !path.exists() {
        assert!(Instant::now() < end, "no socket");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connect).await.expect("a connection")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_admin_tokens_are_replaced_over_the_socket() {
    let node = node("").await;
    let (channel, socket) = (locked(&node).await, local(&node).await);
    let mut tokens = TokenServiceClient::new(socket.clone());
    let first = tokens.reset_tokens(ResetTokensRequest { keep: true }).await.expect("reset").into_inner().secret;
    let first: TokenText = first.parse().expect("a token");
    let viewer = token(&node, role("viewer"), TenantScope::All).await;
    let second = tokens.reset_tokens(ResetTokensRequest { keep: true }).await.expect("reset").into_inner().secret;
    let second: TokenText = second.parse().expect("a token");
    let list = async |by: &TokenText| {
        let mut tokens = TokenServiceClient::new(channel.clone());
        tokens.list_tokens(with(ListTokensRequest::default(), by)).await.map(|list| list.into_inner().tokens.len())
    };
    assert_eq!((list(&first).await.expect("kept"), list(&second).await.expect("valid")), (3, 3));
    let third = tokens.reset_tokens(ResetTokensRequest { keep: false }).await.expect("reset").into_inner().secret;
    let third: TokenText = third.parse().expect("a token");
    assert_eq!(list(&first).await.expect_err("revoked").code(), Code::Unauthenticated);
    assert_eq!(list(&second).await.expect_err("revoked").code(), Code::Unauthenticated);
    assert_eq!(list(&third).await.expect("valid"), 4);
    let schedules = ListSchedulesRequest::default();
    ScheduleServiceClient::new(channel.clone()).list_schedules(with(schedules, &viewer)).await.expect("no admin token");
    // The socket serves nothing else, and no other listener serves it.
    for method in methods().into_iter().filter(|method| !method.path.ends_with("ResetTokens")) {
        call(&socket, &method.path, Vec::new(), Some(&third)).await.expect_err("not served");
    }
    for channel in [&channel, &node.channel] {
        let path = "/reveille.admin.v1.TokenService/ResetTokens";
        let refused = call(channel, path, Vec::new(), Some(&third)).await.expect_err("not served");
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    node.stop().await;
}

/// The node that proposes may not have applied the revocation. The entry is refused where it is applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entry_of_a_token_that_was_revoked_meanwhile_is_refused_by_apply() {
    let node = node("").await;
    let deploy = token(&node, role("editor"), only("acme")).await;
    let within = || Instant::now() + STEP_TIMEOUT;
    let replica = &node.context().replica;
    let (needs, tenant) = (role("editor"), Some("acme".to_owned()));
    let actor = Actor::Operator { token: deploy.id, needs, tenant };
    let write = Command::TenantRemove("acme".into());
    let taken = replica.propose_while_led(&actor, &write, within()).await.expect("an answer");
    assert_eq!(taken.outcome, CommandOutcome::Done);
    replica.propose(&Command::TokenRevoke(deploy.id), within()).await.expect("an answer");
    let refused = replica.propose_while_led(&actor, &write, within()).await.expect("an answer");
    assert_eq!(refused.outcome, CommandOutcome::Refused(CommandRefusal::TokenNotValid));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_ends_when_its_token_is_revoked() {
    let node = node("").await;
    let channel = locked(&node).await;
    let viewer = token(&node, role("viewer"), TenantScope::All).await;
    // Its pool has no relay, so the run stays open.
    let run = node.triggered("report", &["ann@example.org"], "nowhere").await.run;
    let request = WatchRunRequest { run, ..WatchRunRequest::default() };
    let stream = RunServiceClient::new(channel).watch_run(with(request, &viewer)).await.expect("a stream");
    let mut stream = stream.into_inner();
    stream.next().await.expect("a state").expect("a state");
    let revoke = Command::TokenRevoke(viewer.id);
    node.context().replica.propose(&revoke, Instant::now() + STEP_TIMEOUT).await.expect("an answer");
    let end = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                ended => return ended,
            }
        }
    });
    let end = end.await.expect("the stream ends soon").expect("with an error").expect_err("the token is revoked");
    assert_eq!(end.code(), Code::Unauthenticated);
    node.stop().await;
}

/// Gives the other tenant a schedule, a run, and a dead letter, all with the canary in their names and addresses.
/// Returns the id of the run.
async fn other_tenant(node: &Node) -> String {
    let (name, address) = (format!("{CANARY}-report"), format!("{CANARY}@example.org"));
    let body = ScheduleBody { tenant: CANARY.to_owned(), ..yearly(&name, &[&address]) };
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let (tenant, request_id) = (CANARY.to_owned(), "once".to_owned());
    let request = TriggerScheduleRequest { tenant, name, request_id, ..TriggerScheduleRequest::default() };
    let triggered = node.schedules().trigger_schedule(request).await.expect("triggered").into_inner();
    until_dead_letters(node, 1).await;
    triggered.run.expect("a run").run
}

/// Waits until the cluster has so many dead letters.
async fn until_dead_letters(node: &Node, count: usize) {
    let end = Instant::now() + STEP_TIMEOUT;
    while node.context().replica.read(|ledger| ledger.dead().len()) != count {
        assert!(Instant::now() < end, "no dead letter");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A foreign object and one that does not exist are the same to a token: same code, message and details, and the same
/// steps, so that the time says nothing either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_of_a_tenant_sees_nothing_of_another_one() {
    const TRIES: usize = 5;
    let node = node("rcpt:550=5.1.1 no such user").await;
    let admin = Admin::new(node.shared_context());
    let steps = || std::mem::take(&mut *admin.steps.lock());
    let channel = connected(address_of(admin.clone()).await).await;
    let foreign_run = other_tenant(&node).await;
    let (tenant, name) = (CANARY.to_owned(), format!("{CANARY}-report"));
    let content = yearly(&name, &[]).content;
    let template = PutTemplateRequest {
        tenant: tenant.clone(),
        name: name.clone(),
        content: content.clone(),
        ..Default::default()
    };
    node.templates().put_template(template).await.expect("put");
    let to = vec![format!("{CANARY}@example.org")];
    let message = SendMessageRequest { tenant, key: name, to, content, ..Default::default() };
    node.messages().send_message(message).await.expect("sent");
    let acme = token(&node, role("admin"), only("acme")).await;
    // As long as the other one, so that lengths in the details are equal.
    let absent_run = foreign_run.replace(|one: char| one.is_ascii_digit(), "9");
    let shape = |called: &Result<Bytes, Status>, named: &str| match called {
        Ok(bytes) => format!("answer of {} bytes", bytes.len()),
        Err(status) => {
            let details = String::from_utf8_lossy(status.details()).into_owned();
            format!("{:?} {} {details}", status.code(), status.message()).replace(named, "NAMED")
        }
    };
    // As long, and as similar to other names.
    let other = "xebra";
    for method in methods() {
        let row = METHODS.iter().find(|row| row.path == method.path).expect("a row");
        for tenant in [CANARY, other].into_iter().filter(|_| row.reach == Reach::Tenant) {
            let refused = call(&channel, row.path, naming(&method, tenant), Some(&acme)).await;
            let refused = refused.expect_err("another tenant");
            assert_eq!(reason(&refused), (Code::PermissionDenied, "NOT_PERMITTED".to_owned()), "{}", row.path);
            assert_eq!(steps(), [""; 0], "{} about {tenant}: it is refused before any work", row.path);
        }
    }
    let (foreign, absent) = (format!("{CANARY}-report"), format!("{other}-report"));
    // Each pair is called again if its steps differ: a stream that was opened before may add some for a moment.
    let (all, mut tries) = (methods(), 0);
    let mut rest = all.iter().peekable();
    while let Some(method) = rest.peek() {
        let message = method.message.as_str();
        let row = METHODS.iter().find(|row| row.path == method.path).expect("a row");
        let (mut answers, mut taken) = (Vec::new(), Vec::new());
        for (name, run) in [(foreign.as_str(), foreign_run.as_str()), (absent.as_str(), &absent_run)] {
            steps();
            let mut bytes = naming(method, "acme");
            let places =
                [("name", name), ("key", name), ("run", run), ("schedule", name), ("recipient", "ann@example.org")];
            for (place, text) in places {
                let is_tenant = message == "GetTenantRequest" && place == "name";
                let is_body = place == "schedule" && field(message, "tenant").is_none();
                if let Some(number) = field(message, place).filter(|_| !is_tenant && !is_body) {
                    bytes.extend(encoded(number, text.as_bytes()));
                }
            }
            let called = call(&channel, row.path, bytes, Some(&acme)).await;
            taken.push(steps());
            let text = format!("{called:?}").replace(&foreign, "");
            assert!(!text.contains(CANARY), "{}: {text}", row.path);
            answers.push(shape(&shape_of(called, run), name));
        }
        assert_eq!(answers[0], answers[1], "{}", row.path);
        tries += 1;
        if taken[0] == taken[1] {
            rest.next();
            tries = 0;
        }
        assert!(tries < TRIES, "{}: {taken:?}", row.path);
    }
    node.stop().await;

    fn shape_of(called: Result<Bytes, Status>, run: &str) -> Result<Bytes, Status> {
        called.map_err(|status| {
            let details = String::from_utf8_lossy(status.details()).replace(run, "RUN");
            Status::with_details(status.code(), status.message().replace(run, "RUN"), details.into_bytes().into())
        })
    }
}

/// Without the right to addresses, no response contains one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_need_the_role_pii() {
    let node = node("rcpt:550=5.1.1 no such user").await;
    let channel = locked(&node).await;
    let run = other_tenant(&node).await;
    let (viewer, pii) = (
        token(&node, role("viewer"), only(CANARY)).await,
        token(&node, role("viewer").union(role("pii")), only(CANARY)).await,
    );
    let address = format!("{CANARY}@example.org");
    let name = format!("{CANARY}-report");
    let (tenant, content) = (CANARY.to_owned(), yearly(&name, &[]).content);
    let (key, to) = (name.clone(), vec![address.clone()]);
    let message = SendMessageRequest { tenant: tenant.clone(), key, to, content, ..Default::default() };
    node.messages().send_message(message).await.expect("sent");
    until_dead_letters(&node, 2).await;
    let opt_out = AddOptOutRequest { tenant, recipient: address.clone(), ..Default::default() };
    node.opt_outs().add_opt_out(opt_out).await.expect("opted out");
    let mut shown = Vec::new();
    for (token, sees) in [(&viewer, false), (&pii, true)] {
        for method in methods() {
            let message = method.message.as_str();
            let row = METHODS.iter().find(|row| row.path == method.path).expect("a row");
            let mut bytes = naming(&method, CANARY);
            for (place, text) in [("run", run.as_str()), ("name", &name), ("key", &name), ("recipient", "#0")] {
                let is_tenant = message == "GetTenantRequest" && place == "name";
                if let Some(number) = field(message, place).filter(|_| !is_tenant) {
                    bytes.extend(encoded(number, text.as_bytes()));
                }
            }
            if let Some(number) = field(message, "single") {
                bytes.extend([(number as u8) << 3, 1]);
            }
            if let Ok(answer) = call(&channel, row.path, bytes, Some(token)).await
                && String::from_utf8_lossy(&answer).contains(&address)
            {
                assert!(sees, "{} shows an address", row.path);
                shown.push(row.path.rsplit('/').next().expect("a method"));
            }
        }
    }
    shown.sort_unstable();
    let expected = [
        "CountDeadLetters",
        "Explain",
        "ExportRunRecipients",
        "GetMessage",
        "ListDeadLetters",
        "ListEvents",
        "ListOptOuts",
        "ListRunRecipients",
    ];
    assert_eq!(shown, expected);
    let body = GetScheduleRequest { tenant: CANARY.to_owned(), name, with_body: true, stale: false };
    let name = body.name.clone();
    let mut schedules = ScheduleServiceClient::new(channel.clone());
    let denied = schedules.get_schedule(with(body.clone(), &viewer)).await.expect_err("a body has recipients");
    assert_eq!(denied.code(), Code::PermissionDenied);
    schedules.get_schedule(with(body, &pii)).await.expect("permitted");
    let body = ScheduleBody { tenant: CANARY.to_owned(), name, ..ScheduleBody::default() };
    let update = UpdateScheduleRequest {
        schedule: Some(body),
        update_mask: Some(prost_types::FieldMask { paths: vec!["priority".to_owned()] }),
        validate_only: true,
        with_bodies: true,
        ..UpdateScheduleRequest::default()
    };
    let editor = token(&node, role("viewer").union(role("editor")), only(CANARY)).await;
    let denied =
        schedules.update_schedule(with(update.clone(), &editor)).await.expect_err("both bodies have recipients");
    assert_eq!(denied.code(), Code::PermissionDenied);
    let without = UpdateScheduleRequest { with_bodies: false, ..update.clone() };
    schedules.update_schedule(with(without, &editor)).await.expect("permitted");
    let both = token(&node, role("editor").union(role("pii")), only(CANARY)).await;
    let answer = schedules.update_schedule(with(update, &both)).await.expect("permitted").into_inner();
    assert!(answer.body.is_some() && answer.former_body.is_some());
    let count = CountDeadLettersRequest { tenant: CANARY.to_owned(), ..CountDeadLettersRequest::default() };
    let path = "/reveille.admin.v1.DeadLetterService/CountDeadLetters";
    let counted = call(&channel, path, count.encode_to_vec(), Some(&viewer)).await.expect("counted");
    let counted = CountDeadLettersResponse::decode(counted).expect("an answer");
    assert_eq!(counted.groups.iter().map(|group| group.count).sum::<u64>(), 2, "they are counted all the same");
    node.stop().await;
}

#[test]
fn token_id_has_one_text() {
    assert_eq!("00000000000000ff".parse(), Ok(TokenId(255)));
    for text in ["ff", "00000000000000FF", "+0000000000000ff", ""] {
        assert!(text.parse::<TokenId>().is_err(), "{text}");
    }
}
