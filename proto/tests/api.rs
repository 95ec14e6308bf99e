//! Rules for the names of the admin API (those of buf's category STANDARD, and some of the AIPs), and its whole surface
//! as a file, so that no change of it passes unseen.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};
use reveille_proto::DESCRIPTORS;

const PACKAGE: &str = "reveille.admin.v1";
/// First words of the methods that change nothing.
const READS: [&str; 10] =
    ["List", "Get", "Find", "Watch", "Explain", "Export", "Preview", "Count", "Check", "TestRelay"];
/// Words that a field cannot be named by in Python, Ruby, JavaScript or Kotlin. Go and Rust are not affected: fields of
/// Go begin with a capital letter, and Rust escapes.
const KEYWORDS: &str = "and as assert async await begin break case catch class const continue debugger def default \
    defined del delete do elif else elsif end ensure enum except export extends false finally for from fun function \
    global if implements import in instanceof interface is lambda let module new next nil none nonlocal not null \
    object or package pass private protected public raise redo rescue retry return self static super switch then this \
    throw true try typealias typeof undef unless until val var void when while with yield";
/// Times with another name, and why.
const OTHER_TIMES: [(&str, &str); 1] = [("When.at", "it is a pattern beside `cron`, `daily` and `every`")];
/// Lists without pages, and why.
const UNPAGED: [(&str, &str); 2] =
    [("ListMembers", "a cluster has a few members"), ("ListEvents", "its cursor goes on after the last event")];
/// Methods whose response is another message, and why.
const OTHER_RESPONSES: [(&str, &str); 1] = [("ExportRunRecipients", "each line is a recipient")];
/// Writes without a trial, and why.
const UNTRIED: &[(&str, &str)] = &[
    ("AbortRotation", "it takes back"),
    ("AcceptArchiveLoss", "it takes names from GetArchiveLoss, which says what it does"),
    ("AcceptRestore", "it takes numbers from GetRestore, which says what it does"),
    ("AddMember", "its token does nothing until a node uses it"),
    ("AddOptOut", "it is taken back"),
    ("AdvanceClock", "a test's clock only"),
    ("BatchCreateSchedules", "it is for programs, which try a schedule by CreateSchedule"),
    ("CreateBackup", "it changes nothing that sends"),
    ("CreateToken", "it is revoked"),
    ("DrainMember", "it is taken back"),
    ("EraseRecipient", "FindRecipient says what it reaches"),
    ("FinishUpgrade", "GetUpgrade says whether it is possible"),
    ("PauseCampaign", "it is taken back"),
    ("PauseRun", "it is taken back"),
    ("PrepareAudience", "it is the trial of an import"),
    ("PutPart", "a part is no audience until it is sealed"),
    ("RemoveMember", "ListMembers says who votes and sends"),
    ("RemovePool", "refused while it is used"),
    ("RemoveRelay", "it is added again"),
    ("RemoveTenant", "refused while it is used"),
    ("ResetTokens", "the last resort of the machine's owner"),
    ("ResumeCampaign", "it is taken back"),
    ("ResumeRun", "it is taken back"),
    ("RevokeToken", "another token is created"),
    ("RotateAuthority", "GetAuthority says where it is, and it is aborted"),
    ("Scrub", "it changes nothing"),
    ("SealAudience", "PrepareAudience is its trial"),
    ("TransferLeader", "it is handed back"),
    ("UploadRecipients", "a part is no audience until it is sealed"),
];

/// Writes without a request id or key, and what makes a repeat safe, or why it cannot be.
const UNKEYED: &[(&str, &str)] = &[
    ("AcceptArchiveLoss", "it is accepted once"),
    ("AcceptRestore", "it is accepted once"),
    ("AddMember", "its secret is shown once, and does nothing until a node uses it"),
    ("AdvanceClock", "a test's clock only; `target_time` is reached once"),
    ("BatchCreateSchedules", "each name is created once"),
    ("CancelCampaign", "it is cancelled once"),
    ("CancelMessage", "it is cancelled once"),
    ("CancelRun", "it is cancelled once"),
    ("CreateBackup", "another backup copies only what is new"),
    ("CreateToken", "its secret is shown once; it is revoked if the answer is lost"),
    ("DeleteCampaign", "it is gone; its etag, where another one may get its name"),
    ("DeleteSchedule", "it is gone; its etag, where another one may get its name"),
    ("DeleteTemplate", "it is gone; its etag, where another one may get its name"),
    ("DrainMember", "it drains already"),
    ("EraseRecipient", "its rows are empty already"),
    ("ImportOptOuts", "they are opted out already"),
    ("LaunchCampaign", "it is launched once"),
    ("PauseCampaign", "it is paused already"),
    ("PauseRun", "it is paused already"),
    ("PauseSchedule", "it is paused already"),
    ("PrepareAudience", "it changes nothing"),
    ("PutPart", "a part is known by its hash"),
    ("PutSchedule", "it is equal to the body already"),
    ("PutTemplate", "its newest version has the content already"),
    ("RemoveMember", "a repeat continues it"),
    ("RemovePool", "nothing is set already; its etag, where it may be set again"),
    ("RemoveRelay", "it is gone; its etag, where another one may get its name"),
    ("RemoveTenant", "nothing is set already; its etag, where it may be set again"),
    ("ResetTokens", "its secret is shown once; the next one revokes it"),
    ("ResumeCampaign", "its etag"),
    ("ResumeRun", "its etag"),
    ("ResumeSchedule", "its etag"),
    ("RevokeToken", "it is revoked already"),
    ("Scrub", "it only begins the check again"),
    ("TakeBackOptOut", "its etag"),
    ("TransferLeader", "`to` leads already"),
    ("UploadRecipients", "a part is known by its hash"),
];
/// Writes without an etag, and why they need no condition.
const UNCONDITIONAL: &[(&str, &str)] = &[
    ("AbortRotation", "refused at another step of the rotation"),
    ("AcceptArchiveLoss", "it names what is lost"),
    ("AcceptRestore", "a restore changes only by this"),
    ("AddMember", "it creates"),
    ("AddOptOut", "it holds whatever was before"),
    ("AdvanceClock", "the clock only goes forward"),
    ("BackfillSchedule", "what has opened never opens again"),
    ("BatchCreateSchedules", "it creates"),
    ("CancelMessage", "a message never changes"),
    ("CancelRun", "it holds whatever was before"),
    ("CreateBackup", "it creates"),
    ("CreateCampaign", "it creates"),
    ("CreateSchedule", "it creates"),
    ("CreateToken", "it creates"),
    ("DiscardDeadLetters", "it names recipients, or what they have in common"),
    ("DrainMember", "it holds whatever was before"),
    ("EraseRecipient", "it holds whatever was before"),
    ("FinishUpgrade", "the level only rises"),
    ("ImportOptOuts", "they hold whatever was before"),
    ("PauseCampaign", "it holds whatever was before"),
    ("PauseRun", "it holds whatever was before"),
    ("PauseSchedule", "it holds whatever was before"),
    ("PrepareAudience", "it changes nothing"),
    ("PutPart", "a part never changes"),
    ("RemoveMember", "refused unless the member is as `dead` says"),
    ("RequeueDeadLetters", "it names recipients, or what they have in common"),
    ("ResetTokens", "it holds whatever was before"),
    ("ResolveDoubts", "`fence` is its condition"),
    ("RevokeToken", "a token never changes"),
    ("RotateAuthority", "`replaces` is its condition"),
    ("Scrub", "it changes nothing"),
    ("SealAudience", "it creates"),
    ("SendMessage", "it creates"),
    ("SendTest", "it creates"),
    ("TransferLeader", "any member may lead"),
    ("TriggerSchedule", "it creates a run of what the schedule is now"),
    ("UploadRecipients", "a part never changes"),
];

fn pool() -> DescriptorPool {
    DescriptorPool::decode(DESCRIPTORS).expect("descriptors")
}

fn messages(pool: &DescriptorPool) -> Vec<MessageDescriptor> {
    pool.all_messages().filter(|message| message.package_name() == PACKAGE && !message.is_map_entry()).collect()
}

fn fields(pool: &DescriptorPool) -> Vec<FieldDescriptor> {
    messages(pool).iter().flat_map(|message| message.fields().collect::<Vec<_>>()).collect()
}

fn enums(pool: &DescriptorPool) -> Vec<EnumDescriptor> {
    pool.all_enums().filter(|values| values.package_name() == PACKAGE).collect()
}

fn methods(pool: &DescriptorPool) -> Vec<MethodDescriptor> {
    let services = pool.services().filter(|service| service.package_name() == PACKAGE);
    services.flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

/// Returns `RUN_STATE` for `RunState`.
fn upper_snake(name: &str) -> String {
    let mut text = String::new();
    for (place, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && place > 0 {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

fn has(message: &MessageDescriptor, field: &str) -> bool {
    message.get_field_by_name(field).is_some()
}

fn is_lower_snake(name: &str) -> bool {
    let letters = |part: &str| {
        !part.is_empty() && part.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
    };
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.split('_').all(letters)
}

fn is_upper_camel(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.chars().all(|one| one.is_ascii_alphanumeric())
}

/// Fails with all that breaks a rule.
fn none(rule: &str, broken: impl IntoIterator<Item = String>) {
    let broken: Vec<String> = broken.into_iter().collect();
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

/// Fails if the exceptions of a rule are not those that need one.
fn only(rule: &str, broken: impl IntoIterator<Item = String>, exceptions: &[(&str, &str)]) {
    let broken: BTreeSet<String> = broken.into_iter().collect();
    let known: BTreeSet<String> = exceptions.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(broken, known, "{rule}; an exception needs a reason, and one that is not needed is removed");
}

#[test]
fn names_have_their_usual_form() {
    let pool = pool();
    let full = |field: &FieldDescriptor| field.full_name().to_owned();
    none("a field is lower_snake_case", fields(&pool).iter().filter(|one| !is_lower_snake(one.name())).map(full));
    let oneofs = messages(&pool).into_iter().flat_map(|message| message.oneofs().collect::<Vec<_>>());
    let oneofs = oneofs.filter(|one| !is_lower_snake(one.name().trim_start_matches('_')));
    none("a oneof is lower_snake_case", oneofs.map(|one| one.full_name().to_owned()));
    let wrong = messages(&pool).into_iter().filter(|message| !is_upper_camel(message.name()));
    none("a message is UpperCamelCase", wrong.map(|message| message.full_name().to_owned()));
    let services = pool.services().filter(|service| service.package_name() == PACKAGE);
    none(
        "a service ends with Service",
        services.filter(|service| !service.name().ends_with("Service")).map(|one| one.full_name().to_owned()),
    );
}

#[test]
fn enum_begins_with_unspecified_and_prefixes_its_values() {
    let values = enums(&pool()).into_iter().flat_map(|values| {
        let prefix = upper_snake(values.name());
        let wrong = values.values().filter(|value| match value.number() {
            0 => value.name() != format!("{prefix}_UNSPECIFIED"),
            _ => !value.name().starts_with(&format!("{prefix}_")),
        });
        wrong.map(|value| value.full_name().to_owned()).collect::<Vec<_>>()
    });
    none("a value has the prefix of its enum, and zero is _UNSPECIFIED", values);
}

#[test]
fn method_has_messages_of_its_own() {
    let methods = methods(&pool());
    let wrong = methods.iter().filter(|method| method.input().name() != format!("{}Request", method.name()));
    none("the request of a method is <Method>Request", wrong.map(|method| method.full_name().to_owned()));
    let wrong = methods.iter().filter(|method| method.output().name() != format!("{}Response", method.name()));
    only("a response is <Method>Response", wrong.map(|method| method.name().to_owned()), &OTHER_RESPONSES);
}

#[test]
fn list_has_pages() {
    let methods = methods(&pool());
    let lists = methods.iter().filter(|method| method.name().starts_with("List"));
    let unpaged = lists.filter(|method| {
        let (input, output) = (method.input(), method.output());
        !(has(&input, "page_size") && has(&input, "page_token") && has(&output, "next_page_token"))
    });
    only("a list has pages", unpaged.map(|method| method.name().to_owned()), &UNPAGED);
}

#[test]
fn write_has_a_trial_a_request_id_and_an_etag() {
    let methods = methods(&pool());
    let is_write = |method: &&MethodDescriptor| !READS.iter().any(|word| method.name().starts_with(word));
    let without = |field: &'static str| {
        let writes = methods.iter().filter(is_write);
        writes.filter(move |method| !has(&method.input(), field)).map(|method| method.name().to_owned())
    };
    only("a write has validate_only", without("validate_only"), UNTRIED);
    // The key of a message is its request id.
    only("a write has a request id", without("request_id").filter(|name| name != "SendMessage"), UNKEYED);
    only("a write has an etag", without("etag"), UNCONDITIONAL);
}

#[test]
fn field_names_say_what_they_are_and_are_no_keywords() {
    let pool = pool();
    let is_time = |field: &&FieldDescriptor| match field.kind() {
        Kind::Message(message) => message.full_name() == "google.protobuf.Timestamp",
        _ => false,
    };
    let times = fields(&pool);
    let times = times.iter().filter(is_time).filter(|field| !field.name().ends_with("_time") && field.name() != "time");
    let own = |field: &FieldDescriptor| format!("{}.{}", field.parent_message().name(), field.name());
    only("a time ends with _time (AIP-142)", times.map(own), &OTHER_TIMES);
    let keywords: BTreeSet<&str> = KEYWORDS.split_whitespace().collect();
    let wrong = fields(&pool).into_iter().filter(|field| keywords.contains(field.name()));
    none("a field is no keyword of a language", wrong.map(|field| own(&field)));
}

/// Returns a line for each field, value and method.
fn surface(pool: &DescriptorPool) -> String {
    let mut lines = BTreeSet::new();
    for field in fields(pool) {
        let kind = match field.kind() {
            Kind::Message(message) if field.is_map() => {
                let value = message.map_entry_value_field().kind();
                format!("map<{:?}, {value:?}>", message.map_entry_key_field().kind())
            }
            Kind::Message(message) => message.full_name().to_owned(),
            Kind::Enum(values) => values.full_name().to_owned(),
            scalar => format!("{scalar:?}"),
        };
        let label = match field.cardinality() {
            Cardinality::Repeated => "repeated ",
            _ if field.supports_presence() && field.kind().as_message().is_none() => "optional ",
            _ => "",
        };
        let oneof = field.containing_oneof().filter(|_| field.field_descriptor_proto().proto3_optional.is_none());
        let oneof = oneof.map(|one| format!(" of {}", one.name())).unwrap_or_default();
        lines.insert(format!("{} = {}: {label}{kind}{oneof}", field.full_name(), field.number()));
    }
    for values in enums(pool) {
        lines.extend(values.values().map(|one| format!("{}.{} = {}", values.full_name(), one.name(), one.number())));
    }
    for method in methods(pool) {
        let stream = |is_stream| if is_stream { "stream " } else { "" };
        let (asked, answered) = (stream(method.is_client_streaming()), stream(method.is_server_streaming()));
        let (input, output) = (method.input(), method.output());
        lines.insert(format!("{}({asked}{}) {answered}{}", method.full_name(), input.name(), output.name()));
    }
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", line.replace(&format!("{PACKAGE}."), ""));
        text
    })
}

#[test]
fn surface_is_the_recorded_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surface.txt");
    let now = surface(&pool());
    if env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&path, &now).expect("written");
    }
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    let (now, recorded): (BTreeSet<&str>, BTreeSet<&str>) = (now.lines().collect(), recorded.lines().collect());
    let gone: Vec<_> = recorded.difference(&now).collect();
    assert!(
        gone.is_empty(),
        "a released field may not change; until the release UPDATE_GOLDENFILES=1 records it: {gone:#?}"
    );
    let new: Vec<_> = now.difference(&recorded).collect();
    assert!(new.is_empty(), "UPDATE_GOLDENFILES=1 records what is new: {new:#?}");
}

#[test]
fn every_file_names_its_package_in_other_languages() {
    let pool = pool();
    let wrong = pool.files().filter(|file| file.package_name() == PACKAGE).filter(|file| {
        let options = file.file_descriptor_proto().options.clone().unwrap_or_default();
        let name = Path::new(file.name()).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let words = name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
        let has = (
            options.csharp_namespace(),
            options.go_package(),
            (options.java_package(), options.java_multiple_files(), options.java_outer_classname()),
            options.php_namespace(),
            options.ruby_package(),
        );
        let outer = words.collect::<String>() + "Proto";
        has != (
            "Reveille.Admin.V1",
            "reveille.example/api/reveille/admin/v1;adminv1",
            ("example.reveille.admin.v1", true, outer.as_str()),
            "Reveille\\Admin\\V1",
            "Reveille::Admin::V1",
        )
    });
    none("a file has the package options of all others", wrong.map(|file| file.name().to_owned()));
}

/// Returns the lines of a list. Empty lines and those that begin with `#` are none.
fn lines(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// A removed or renumbered field, another type, a removed value or method, another path or verb: each is a line of the
/// former release that is gone.
#[test]
fn break_since_the_former_release_is_acknowledged() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let read = |path: &str| fs::read_to_string(tests.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let commit = read("../../.ci/former");
    let of_former = |file: &str| {
        let name = format!("{}:proto/tests/{file}", commit.trim());
        let shown = Command::new("git").arg("-C").arg(&tests).args(["show", &name]).output().ok()?;
        shown.status.success().then(|| String::from_utf8_lossy(&shown.stdout).into_owned())
    };
    let (Some(fields), Some(requests)) = (of_former("surface.txt"), of_former("http.txt")) else {
        return eprintln!("{} is not in this clone: nothing is compared", commit.trim());
    };
    let (now, requests_now, breaks) = (surface(&pool()), read("http.txt"), read("breaks.txt"));
    let (former, now) = (&lines(&fields) | &lines(&requests), &lines(&now) | &lines(&requests_now));
    assert_eq!(
        &former - &now,
        lines(&breaks),
        "clients of {} may fail without these lines; until the first release proto/tests/breaks.txt has each, with the \
         reason, and no others",
        commit.trim()
    );
}
