//! `tenant …`: requests and output.

use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, unknown};

fn acme() -> v1::Tenant {
    let (name, etag) = ("acme".into(), "9".into());
    let pools = vec!["bulk".into()];
    v1::Tenant { name, rate_per_second: 2.5, concurrency: 200, share: 3, claimed: 12, index: 9, etag, pools }
}

fn shown() -> serde_json::Value {
    json!({
        "name": "acme", "ratePerSecond": 2.5, "concurrency": 200, "share": 3, "claimed": 12, "index": "9", "etag": "9",
        "pools": ["bulk"],
    })
}

async fn fake() -> Fake {
    Fake::start(|method, _| match method {
        "SetTenant" => one(v1::SetTenantResponse { tenant: Some(acme()) }),
        "GetTenant" => one(v1::GetTenantResponse { tenant: Some(acme()), freshness: None }),
        "ListTenants" => {
            let default = v1::Tenant { name: "default".into(), share: 1, ..Default::default() };
            one(v1::ListTenantsResponse { tenants: vec![acme(), default], ..Default::default() })
        }
        "RemoveTenant" => one(v1::RemoveTenantResponse { index: 10 }),
        _ => Err(unknown(method)),
    })
    .await
}

#[tokio::test]
async fn set_names_what_it_sets_and_nothing_else() {
    let fake = fake().await;
    assert_eq!(fake.reveille("tenant set acme --rate-per-second 2.5 -o json").await.json(), json!({"tenant": shown()}));
    fake.reveille("tenant set acme --concurrency none --share 3").await;
    fake.reveille("tenant set acme --rate-per-second none").await;
    fake.reveille("tenant set acme --pool bulk,news").await;
    fake.reveille("tenant set acme --pool none").await;
    let requested: Vec<v1::SetTenantRequest> = fake.requests("SetTenant");
    let named = |requested: &v1::SetTenantRequest| (requested.rate_per_second, requested.concurrency, requested.share);
    assert_eq!(named(&requested[0]), (Some(2.5), None, None));
    assert_eq!(named(&requested[1]), (None, Some(0), Some(3)));
    assert_eq!(named(&requested[2]), (Some(0.0), None, None));
    let pools = |at: usize| (requested[at].pools.join(","), requested[at].all_pools);
    assert_eq!(
        [pools(2), pools(3), pools(4)],
        [(String::new(), false), ("bulk,news".into(), false), (String::new(), true)]
    );
    assert!(requested.iter().all(|requested| requested.name == "acme" && !requested.request_id.is_empty()));
    for wrong in [
        "",
        " --share 0",
        " --share 17",
        " --rate-per-second 0",
        " --rate-per-second -1",
        " --concurrency 0",
        " --rate-per-second x",
    ] {
        let ended = fake.reveille(&format!("tenant set acme{wrong}")).await;
        assert_eq!(ended.code, Some(2), "{wrong}: {ended:?}");
    }
}

#[tokio::test]
async fn show_and_list_print_the_same_fields() {
    let fake = fake().await;
    assert_eq!(fake.reveille("tenant show acme -o json").await.json(), shown());
    let default = json!({
        "name": "default", "ratePerSecond": 0.0, "concurrency": 0, "share": 1, "claimed": 0, "index": "0", "etag": "",
        "pools": [],
    });
    assert_eq!(fake.reveille("tenant list -o json").await.json(), json!([shown(), default]));
    let table = fake.reveille("tenant list").await.stdout;
    let header: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "RATE", "CONCURRENCY", "SHARE", "CLAIMED"], "{table}");
    assert!(table.contains("2.5/s"), "{table}");
    let card = fake.reveille("tenant show acme").await.stdout;
    assert!(card.contains("log index 9"), "{card}");
}

#[tokio::test]
async fn remove_asks_first_and_says_what_it_did() {
    let fake = fake().await;
    let json = fake.reveille("tenant remove acme --yes -o json").await.json();
    assert_eq!(json, json!({"index": "10"}));
}
