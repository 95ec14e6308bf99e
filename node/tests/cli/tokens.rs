//! `token …`: requests and output.

use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, unknown};

const SECRET: &str = "rvt_00000000000000ff_secret_crc";

fn deploy() -> v1::Token {
    v1::Token {
        id: "00000000000000ff".into(),
        name: "deploy".into(),
        roles: vec![v1::Role::Pii.into(), v1::Role::Editor.into()],
        tenants: vec!["acme".into()],
        create_time: Some(prost_types::Timestamp { seconds: 1_772_409_600, nanos: 0 }),
        valid: true,
        ..v1::Token::default()
    }
}

fn shown() -> serde_json::Value {
    json!({
        "id": "00000000000000ff", "name": "deploy", "roles": ["ROLE_PII", "ROLE_EDITOR"], "tenants": ["acme"],
        "allTenants": false, "createTime": "2026-03-02T00:00:00Z", "createdBy": "", "valid": true,
    })
}

async fn fake() -> Fake {
    Fake::start(|method, _| match method {
        "CreateToken" => one(v1::CreateTokenResponse { token: Some(deploy()), secret: SECRET.into() }),
        "GetOwnToken" => one(v1::GetOwnTokenResponse { cluster: "c1".into(), token: Some(deploy()) }),
        "ListTokens" => one(v1::ListTokensResponse { tokens: vec![deploy()], ..Default::default() }),
        "RevokeToken" => one(v1::RevokeTokenResponse { index: 10 }),
        _ => Err(unknown(method)),
    })
    .await
}

#[tokio::test]
async fn secret_is_printed_once_and_on_stdout_only() {
    let fake = fake().await;
    let create = "token create deploy --role editor,pii --tenant acme --valid-for 1h";
    let created = fake.reveille(&format!("{create} -o json -v")).await;
    assert_eq!(created.json(), json!({"secret": SECRET, "token": shown()}));
    assert!(!created.stderr.contains(SECRET), "{created:?}");
    assert_eq!(fake.reveille(&format!("{create} -o name")).await.stdout.trim(), SECRET);
    let requested: Vec<v1::CreateTokenRequest> = fake.requests("CreateToken");
    let expected = v1::CreateTokenRequest {
        name: "deploy".into(),
        roles: vec![v1::Role::Editor.into(), v1::Role::Pii.into()],
        tenants: vec!["acme".into()],
        all_tenants: false,
        valid_for: Some(prost_types::Duration { seconds: 3_600, nanos: 0 }),
    };
    assert_eq!(requested[0], expected);
    for wrong in
        ["--role viewer", "--all-tenants", "--role root --all-tenants", "--role viewer --tenant a --all-tenants"]
    {
        assert_eq!(fake.reveille(&format!("token create x {wrong}")).await.code, Some(2), "{wrong}");
    }
}

#[tokio::test]
async fn denied_call_names_how_to_see_and_widen_what_a_token_permits() {
    let fake =
        Fake::refusing(tonic::Code::PermissionDenied, "NOT_PERMITTED", "the token does not permit this call").await;
    let denied = fake.reveille("schedule list").await;
    assert_eq!(denied.code, Some(6), "{denied:?}");
    for next in ["reveille token show", "an admin of the cluster", "reveille token create"] {
        assert!(denied.stderr.contains(next), "{denied:?}");
    }
}

#[tokio::test]
async fn list_shows_no_secret_and_revoke_asks_first() {
    let fake = fake().await;
    let listed = fake.reveille("token list -o json").await;
    assert_eq!(listed.json(), json!([shown()]));
    let table = fake.reveille("token list").await.stdout;
    assert!(table.contains("pii, editor") && table.contains("acme") && table.contains("valid"), "{table}");
    let own = fake.reveille("token show -o json").await;
    assert_eq!(own.json(), json!({"cluster": "c1", "token": shown()}));
    let card = fake.reveille("token show").await.stdout;
    assert!(card.contains("cluster") && card.contains("c1") && card.contains("deploy"), "{card}");
    let revoked = fake.reveille("token revoke 00000000000000ff --yes").await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    assert_eq!(fake.requests::<v1::RevokeTokenRequest>("RevokeToken")[0].id, "00000000000000ff");
}
