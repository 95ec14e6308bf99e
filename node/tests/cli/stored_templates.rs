//! `template put`, `show`, `list`, `delete` and `preview`, and `--template` of a schedule.

use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, refusal_of, unknown};

fn version(version: u32, users: u64) -> v1::TemplateVersion {
    let at = Some(prost_types::Timestamp { seconds: 1_795_392_000, nanos: 0 });
    v1::TemplateVersion {
        version,
        content_hash: format!("c{version}"),
        create_time: at,
        index: 10 + u64::from(version),
        users,
    }
}

fn welcome() -> v1::Template {
    v1::Template {
        tenant: "default".into(),
        name: "welcome".into(),
        etag: "e2".into(),
        versions: vec![version(1, 3), version(2, 0)],
    }
}

fn content() -> v1::Content {
    v1::Content {
        sender: "a@example.com".into(),
        subject: "Hello {{ name }}".into(),
        text: Some("Hi {{ name }}\n".into()),
        ..Default::default()
    }
}

async fn fake() -> Fake {
    Fake::start(|method, _| match method {
        "PutTemplate" => one(v1::PutTemplateResponse { template: Some(welcome()), version: 2, created: true }),
        "GetTemplate" => one(v1::GetTemplateResponse {
            template: Some(welcome()),
            content: Some(content()),
            version: 2,
            freshness: None,
        }),
        "ListTemplates" => one(v1::ListTemplatesResponse { templates: vec![welcome()], ..Default::default() }),
        "DeleteTemplate" => one(v1::DeleteTemplateResponse { index: 20 }),
        "PreviewTemplate" => one(v1::PreviewTemplateResponse {
            subject: "Hello Ann".into(),
            text: Some("Hi Ann\n".into()),
            version: 2,
            ..Default::default()
        }),
        "CreateSchedule" => one(v1::CreateScheduleResponse {
            schedule: Some(v1::Schedule { template: "welcome@2".into(), ..Default::default() }),
            created: true,
            ..Default::default()
        }),
        _ => Err(unknown(method)),
    })
    .await
}

fn shown() -> serde_json::Value {
    let version = |number: u32, users: u64| {
        json!({
            "version": number, "contentHash": format!("c{number}"), "createTime": "2026-11-23T00:00:00Z",
            "index": (10 + number).to_string(), "users": users.to_string(),
        })
    };
    json!({"tenant": "default", "name": "welcome", "etag": "e2", "versions": [version(1, 3), version(2, 0)]})
}

#[tokio::test]
async fn put_sends_the_content_and_says_the_version() {
    let fake = fake().await;
    let content = "--sender a@example.com --subject Hi --inline-text Hello --variable city=Rome --bulk";
    let ended = fake.reveille(&format!("template put welcome {content} --tenant acme --etag e1 -o json")).await;
    assert_eq!(ended.json()["template"], shown(), "{ended:?}");
    assert!(ended.stderr.contains("version 2 stored"), "{ended:?}");
    let ended = fake.reveille(&format!("template put welcome {content} --dry-run")).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    let requested: Vec<v1::PutTemplateRequest> = fake.requests("PutTemplate");
    let how: Vec<(&str, &str, &str, bool)> = requested
        .iter()
        .map(|requested| {
            (requested.tenant.as_str(), requested.name.as_str(), requested.etag.as_str(), requested.validate_only)
        })
        .collect();
    assert_eq!(how, [("acme", "welcome", "e1", false), ("default", "welcome", "", true)]);
    let sent = requested[0].content.clone().expect("a content");
    assert_eq!((sent.sender.as_str(), sent.subject.as_str(), sent.bulk), ("a@example.com", "Hi", true));
    assert_eq!((sent.text.as_deref(), sent.variables.len()), (Some("Hello"), 1));
}

#[tokio::test]
async fn show_and_list_print_versions_and_their_users() {
    let fake = fake().await;
    let json = fake.reveille("template show welcome@2 -o json").await.json();
    assert_eq!((&json["template"], &json["version"]), (&shown(), &2.into()));
    assert_eq!(json["content"]["subject"], "Hello {{ name }}");
    let text = fake.reveille("template show welcome").await.stdout;
    assert!(text.starts_with("welcome@2, of 2 versions, 3 users\nFrom: a@example.com\nSubject: Hello"), "{text}");
    let requested: Vec<v1::GetTemplateRequest> = fake.requests("GetTemplate");
    assert_eq!(requested.iter().map(|requested| requested.version).collect::<Vec<_>>(), [2, 0]);
    assert_eq!(fake.reveille("template list -o json").await.json(), json!([shown()]));
    let table = fake.reveille("template list").await.stdout;
    assert!(table.starts_with("NAME") && table.contains("welcome"), "{table}");
    for wrong in ["welcome@0", "welcome@x", "welcome@"] {
        let ended = fake.reveille(&format!("template show {wrong}")).await;
        assert_eq!(ended.code, Some(2), "{wrong}: {ended:?}");
    }
}

#[tokio::test]
async fn preview_prints_one_email_and_delete_wants_a_yes() {
    let fake = fake().await;
    let line = "template preview welcome@2 --recipient ann@example.com --value name=Ann";
    assert_eq!(fake.reveille(line).await.stdout, "Subject: Hello Ann\n\nHi Ann\n");
    assert_eq!(
        fake.reveille(&format!("{line} -o json")).await.json(),
        json!({"subject": "Hello Ann", "headers": [], "text": "Hi Ann\n", "version": 2})
    );
    let requested: Vec<v1::PreviewTemplateRequest> = fake.requests("PreviewTemplate");
    assert_eq!((requested[0].version, requested[0].recipient.as_str()), (2, "ann@example.com"));
    assert_eq!(requested[0].values.get("name").map(String::as_str), Some("Ann"));
    let ended = fake.reveille("template delete welcome").await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(fake.requests::<v1::DeleteTemplateRequest>("DeleteTemplate").is_empty());
    let deleted = fake.reveille("template delete welcome --yes -o json").await.json();
    assert_eq!(deleted, json!({"index": "20"}));
}

#[tokio::test]
async fn schedule_names_a_template_instead_of_a_content() {
    let fake = fake().await;
    let line = "schedule create daily --daily 09:00 --zone UTC --to ann@example.com";
    let ended = fake.reveille(&format!("{line} --template welcome@2 -o json")).await;
    assert_eq!(ended.json()["schedule"]["template"], "welcome@2", "{ended:?}");
    let requested: Vec<v1::CreateScheduleRequest> = fake.requests("CreateSchedule");
    let body = requested[0].schedule.clone().expect("a body");
    assert_eq!((body.template.as_str(), body.content), ("welcome@2", None));
    for wrong in [
        "--template welcome --subject Hello",
        "--template welcome --inline-text Hi",
        "--template welcome --bulk",
        "--subject Hello --inline-text Hi",
        "",
    ] {
        let ended = fake.reveille(&format!("{line} {wrong}")).await;
        assert_eq!(ended.code, Some(2), "{wrong}: {ended:?}");
    }
    assert_eq!(fake.requests::<v1::CreateScheduleRequest>("CreateSchedule").len(), 1);
}

#[tokio::test]
async fn update_sets_and_takes_away_the_template() {
    let fake = Fake::start(|method, _| match method {
        "UpdateSchedule" => one(v1::UpdateScheduleResponse {
            schedule: Some(v1::Schedule::default()),
            former: Some(v1::Schedule::default()),
            ..Default::default()
        }),
        _ => Err(unknown(method)),
    })
    .await;
    for line in ["--template welcome", "--clear template"] {
        let ended = fake.reveille(&format!("schedule update daily {line} --dry-run")).await;
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    }
    let requested: Vec<v1::UpdateScheduleRequest> = fake.requests("UpdateSchedule");
    let sent: Vec<(&str, Vec<String>)> = requested
        .iter()
        .map(|requested| {
            let template = requested.schedule.as_ref().map_or("", |body| body.template.as_str());
            (template, requested.update_mask.clone().unwrap_or_default().paths)
        })
        .collect();
    assert_eq!(sent, [("welcome", vec!["template".to_owned()]), ("", vec!["template".to_owned()])]);
}

#[tokio::test]
async fn refusal_names_the_flag() {
    let fake = Fake::start(|method, _| match method {
        "CreateSchedule" => Err(refusal_of("TEMPLATE_NOT_FOUND", "schedule.template", "no template 'welcome'")),
        _ => Err(unknown(method)),
    })
    .await;
    let line = "schedule create daily --daily 09:00 --zone UTC --to ann@example.com --template welcome -o json";
    let ended = fake.reveille(line).await;
    assert_eq!(ended.error()["field"], "--template", "{ended:?}");
}
