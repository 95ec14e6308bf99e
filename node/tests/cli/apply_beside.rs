//! `apply` and `diff` of campaigns, tenants and pools: created or set as a whole, and unchanged the second time.

use std::sync::Mutex;

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::Value;
use tonic::Code;

use crate::fake::{Fake, one, refusal, unknown};
use crate::terminal::Ended;

const ALL: &str = "\
kind: tenant
spec: {name: acme, ratePerSecond: 50, pools: [bulk]}
---
kind: pool
spec:
  name: bulk
  warmUp: [50, 100]
---
kind: campaign
spec:
  schedule:
    name: spring
    tenant: acme
    audience: {sealed: subscribers}
    timing: {at: 2030-01-01T09:00:00Z}
    zone: UTC
    pool: bulk
    content: {sender: News <news@example.com>, subject: 'Spring, {{ name }}', textFile: body.txt}
    labels: {team: news}
  canary: {percent: 1}
";

/// Starts a fake cluster that stores what it gets. It refuses a campaign whose name exists with another body.
async fn remembering() -> Fake {
    let state = Mutex::new((None::<v1::Tenant>, None::<v1::Pool>, None::<v1::CreateCampaignRequest>));
    Fake::start(move |method, bytes| {
        let (tenant, pool, campaign) = &mut *state.lock().expect("unpoisoned");
        let missing = |reason| refusal(Code::NotFound, reason, "there is none of that name");
        let draft = |requested: &v1::CreateCampaignRequest| v1::Campaign {
            name: requested.schedule.as_ref().map(|body| body.name.clone()).unwrap_or_default(),
            state: v1::CampaignState::Draft.into(),
            ..v1::Campaign::default()
        };
        match method {
            "GetTenant" => match tenant {
                Some(tenant) => one(v1::GetTenantResponse { tenant: Some(tenant.clone()), freshness: None }),
                None => Err(missing("TENANT_NOT_FOUND")),
            },
            "SetTenant" => {
                let set = v1::SetTenantRequest::decode(bytes).expect("a request");
                let known = v1::Tenant {
                    name: set.name,
                    rate_per_second: set.rate_per_second.expect("all of it is set"),
                    concurrency: set.concurrency.expect("all of it is set"),
                    share: set.share.expect("all of it is set"),
                    pools: set.pools,
                    index: 3,
                    ..v1::Tenant::default()
                };
                if !set.validate_only {
                    *tenant = Some(known.clone());
                }
                one(v1::SetTenantResponse { tenant: Some(known) })
            }
            "GetPool" => match pool {
                Some(pool) => one(v1::GetPoolResponse { pool: Some(pool.clone()), freshness: None }),
                None => Err(missing("POOL_NOT_FOUND")),
            },
            "SetPool" => {
                let set = v1::SetPoolRequest::decode(bytes).expect("a request");
                let first_day = if set.first_day.is_empty() { "2026-11-22".to_owned() } else { set.first_day };
                let reveille_headers = set.reveille_headers.expect("a document says all");
                let known = v1::Pool {
                    name: set.name,
                    warm_up: set.warm_up,
                    first_day,
                    reveille_headers,
                    index: 7,
                    ..v1::Pool::default()
                };
                if known.warm_up.contains(&7) {
                    return Err(refusal(Code::InvalidArgument, "INVALID_FIELD", "seven is no cap"));
                }
                if !set.validate_only {
                    *pool = Some(known.clone());
                }
                one(v1::SetPoolResponse { pool: Some(known), ..Default::default() })
            }
            "GetCampaign" => match campaign {
                Some(known) => one(v1::GetCampaignResponse { campaign: Some(draft(known)), ..Default::default() }),
                None => Err(missing("CAMPAIGN_NOT_FOUND")),
            },
            "CreateCampaign" => {
                let requested = v1::CreateCampaignRequest::decode(bytes).expect("a request");
                let body = |requested: &v1::CreateCampaignRequest| (requested.schedule.clone(), requested.canary);
                if campaign.as_ref().is_some_and(|known| body(known) != body(&requested)) {
                    return Err(refusal(
                        Code::AlreadyExists,
                        "NAME_TAKEN",
                        "campaign 'spring' exists with another body",
                    ));
                }
                let reported = draft(&requested);
                if !requested.validate_only {
                    *campaign = Some(requested);
                }
                one(v1::CreateCampaignResponse { campaign: Some(reported), created: true, warnings: Vec::new() })
            }
            _ => Err(unknown(method)),
        }
    })
    .await
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(document: &str) -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        folder.write(document);
        std::fs::write(folder.0.path().join("body.txt"), "Hello {{ name }}\n").expect("written");
        folder
    }

    fn write(&self, document: &str) {
        std::fs::write(self.0.path().join("all.yaml"), document).expect("written");
    }

    async fn reveille(&self, fake: &Fake, verb: &str) -> Ended {
        fake.reveille(&format!("{verb} -f {}", self.0.path().join("all.yaml").display())).await
    }
}

fn outcomes(ended: &Ended) -> Vec<String> {
    let rows = ended.json();
    let word = |row: &Value| format!("{}/{} {}", row["kind"], row["name"], row["outcome"]).replace('"', "");
    rows.as_array().expect("an array").iter().map(word).collect()
}

#[tokio::test]
async fn they_are_made_once_and_a_campaign_is_not_launched() {
    let (fake, folder) = (remembering().await, Folder::with(ALL));
    let would = folder.reveille(&fake, "apply --dry-run -o json").await;
    assert_eq!(would.code, Some(0), "{would:?}");
    assert_eq!(
        outcomes(&would),
        ["tenant/acme would_create", "pool/bulk would_create", "campaign/spring would_create"]
    );
    let creation = folder.reveille(&fake, "apply -o json").await;
    assert_eq!(
        outcomes(&creation),
        ["tenant/acme created", "pool/bulk created", "campaign/spring created"],
        "{creation:?}"
    );
    let again = folder.reveille(&fake, "apply -o json").await;
    assert_eq!(outcomes(&again), ["tenant/acme unchanged", "pool/bulk unchanged", "campaign/spring unchanged"]);
    assert_eq!(again.json()[2]["notes"][0], "it is a draft: reveille campaign launch spring");
    let same = folder.reveille(&fake, "diff").await;
    assert_eq!(same.code, Some(0), "{same:?}");

    let requested: Vec<v1::CreateCampaignRequest> = fake.requests("CreateCampaign");
    let requested = requested.iter().find(|requested| !requested.validate_only).expect("drafted");
    assert_eq!(requested.canary, Some(v1::Canary { percent: 1.0, hold_percent: None }));
    let body = requested.schedule.clone().expect("a body");
    assert_eq!((body.tenant.as_str(), body.pool.as_str()), ("acme", "bulk"));
    assert_eq!(body.content.and_then(|content| content.text).as_deref(), Some("Hello {{ name }}\n"), "beside it");
    assert!(!fake.methods().iter().any(|method| method == "LaunchCampaign"));
}

#[tokio::test]
async fn omitted_bound_is_none_and_draft_is_frozen() {
    let (fake, folder) = (remembering().await, Folder::with(ALL));
    folder.reveille(&fake, "apply").await;
    folder.write(
        &ALL.replace("ratePerSecond: 50", "share: 3").replace("[50, 100]", "[50]").replace("Spring,", "Summer,"),
    );
    let differs = folder.reveille(&fake, "diff").await;
    for words in ["ratePerSecond: 50.0 → 0.0", "share: 1 → 3", "warmUp"] {
        assert!(differs.stdout.contains(words), "{words}: {differs:?}");
    }
    let refused = folder.reveille(&fake, "apply -o json").await;
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert_eq!(outcomes(&refused), ["tenant/acme would_update", "pool/bulk would_update", "campaign/spring failed"]);
    folder.write(&ALL.replace("ratePerSecond: 50, pools: [bulk]", "share: 3").replace("[50, 100]", "[50]"));
    let changed = folder.reveille(&fake, "apply -o json").await;
    assert_eq!(outcomes(&changed), ["tenant/acme updated", "pool/bulk updated", "campaign/spring unchanged"]);
    let set: Vec<v1::SetTenantRequest> = fake.requests("SetTenant");
    let set = set.last().expect("set");
    assert_eq!((set.rate_per_second, set.concurrency, set.share), (Some(0.0), Some(0), Some(3)));
    assert!(set.pools.is_empty() && set.all_pools, "{set:?}");
}

#[tokio::test]
async fn bounds_and_warm_ups_are_shown_as_the_documents_that_set_them() {
    let (fake, folder) = (remembering().await, Folder::with(ALL));
    folder.reveille(&fake, "apply").await;
    let tenant = fake.reveille("tenant show acme --manifest").await.stdout;
    let lines = ["kind: tenant", "spec:", "  name: acme", "  ratePerSecond: 50.0", "  concurrency: 0", "  share: 1"];
    assert_eq!(tenant.lines().take(lines.len()).collect::<Vec<_>>(), lines, "{tenant}");
    assert!(tenant.contains("pools") && tenant.contains("bulk"), "{tenant}");
    let pool = fake.reveille("pool show bulk --manifest").await.stdout;
    for line in ["kind: pool", "  name: bulk"] {
        assert!(pool.lines().any(|shown| shown == line), "{pool}");
    }
    folder.write(&format!("{tenant}---\n{pool}"));
    let again = folder.reveille(&fake, "apply -o json").await;
    assert_eq!(outcomes(&again), ["tenant/acme unchanged", "pool/bulk unchanged"], "{again:?}");
}

#[tokio::test]
async fn refused_pool_leaves_tenant_before_it_unchanged() {
    let (fake, folder) = (remembering().await, Folder::with(&ALL.replace("[50, 100]", "[7]")));
    let refused = folder.reveille(&fake, "apply -o json").await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let set: Vec<v1::SetTenantRequest> = fake.requests("SetTenant");
    assert!(!set.is_empty() && set.iter().all(|requested| requested.validate_only), "{set:?}");
}
