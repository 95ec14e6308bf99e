//! Checks the Kubernetes manifest and the image in `packaging/`: their ports, paths, names and settings are those of
//! the product, and a node that is made and started as they say answers their probes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use reveille_harness::host_network::HostNetwork;
use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value};

use crate::blocks::root;
use crate::machines::without_overlay;

const BINARY: &str = env!("CARGO_BIN_EXE_reveille");
/// The pod whose node makes the cluster.
const POD: &str = "reveille-0";

/// Makes and starts the node of a pod in a view of this machine, as the image's user, and sends the probes.
const START_POD: &str = r#"
set -euo pipefail
fail() { echo "$1" >&2; cat /tmp/log >&2; exit 1; }
ip link set lo up
rm -rf /var/lib/reveille /etc/reveille
ln -sf /tmp/reveille /usr/bin/reveille
sh -euc "$FOLDERS"
install -d /etc/reveille /join
cp /tmp/reveille.toml /etc/reveille/
printf init > "/join/$POD"
printf '127.0.0.1 %s.%s\n' "$POD" "$SERVICE" >> /etc/hosts
mapfile -t variables < /tmp/variables
inside() {
    setpriv --reuid "${USER_OF_IMAGE%:*}" --regid "${USER_OF_IMAGE#*:}" --clear-groups \
        env -i PATH="$PATH" "${variables[@]}" "$@"
}
inside sh -euc "$PREPARE" > /tmp/log 2>&1 || fail "a new volume is not prepared"
inside reveille $ARGUMENTS > /tmp/log 2>&1 &
while read -r probe; do
    timeout 60 sh -c "until curl --silent --fail --insecure --output /dev/null $probe; do sleep 0.2; done" ||
        fail "$probe"
done < /tmp/probes
[[ $(inside reveille cluster member add -o name) == rvj1_* ]] || fail "it makes no join token"
inside sh -euc "$PREPARE" > /tmp/log 2>&1 || fail "a volume in use is prepared again"
"#;

/// The manifest.
struct Manifest {
    objects: Vec<Value>,
}

impl Manifest {
    fn read() -> Manifest {
        let text = fs::read_to_string(root().join("packaging/kubernetes/reveille.yaml")).expect("a manifest");
        Manifest { objects: documents(&text) }
    }

    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.objects.iter().filter(|object| object["kind"] == kind).collect()
    }

    fn set(&self) -> &Value {
        self.of_kind("StatefulSet")[0]
    }

    /// Returns the container of the node.
    fn node(&self) -> &Value {
        &self.set()["spec"]["template"]["spec"]["containers"][0]
    }

    /// Returns the container that prepares the volume.
    fn prepare(&self) -> &Value {
        &self.set()["spec"]["template"]["spec"]["initContainers"][0]
    }

    /// Returns the settings file, with its examples.
    fn settings(&self) -> String {
        let file = text(&self.of_kind("ConfigMap")[0]["data"]["reveille.toml"]);
        let example = |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
        file.lines().map(|line| example(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
    }

    /// Returns the variables of the node of [`POD`].
    fn variables(&self) -> BTreeMap<&str, String> {
        let mut variables: BTreeMap<&str, String> = BTreeMap::new();
        for one in items(&self.node()["env"]) {
            let value = match &one["valueFrom"]["fieldRef"]["fieldPath"] {
                Value::Null => variables.iter().fold(text(&one["value"]).to_owned(), |text, (name, value)| {
                    text.replace(&format!("$({name})"), value)
                }),
                field => {
                    assert_eq!(field, "metadata.name");
                    POD.to_owned()
                }
            };
            variables.insert(text(&one["name"]), value);
        }
        variables
    }

    /// Returns the ports of the node by name.
    fn ports(&self) -> BTreeMap<&str, &str> {
        items(&self.node()["ports"]).iter().map(|port| (text(&port["name"]), text(&port["containerPort"]))).collect()
    }

    /// Returns the folders that the containers mount.
    fn mounted(&self) -> BTreeSet<&str> {
        items(&self.node()["volumeMounts"]).iter().map(|mount| text(&mount["mountPath"])).collect()
    }
}

/// Returns the documents of a text with YAML. Each scalar is a text, and each alias what it stands for.
fn documents(yaml: &str) -> Vec<Value> {
    let mut events = Parser::new_from_str(yaml).map(|event| event.expect("YAML").0);
    let (mut anchors, mut documents) = (BTreeMap::new(), Vec::new());
    while let Some(event) = events.next() {
        if matches!(event, Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..)) {
            documents.push(value(event, &mut events, &mut anchors));
        }
    }
    documents
}

fn value<'y>(
    event: Event<'y>,
    events: &mut impl Iterator<Item = Event<'y>>,
    anchors: &mut BTreeMap<usize, Value>,
) -> Value {
    let (anchor, read) = match event {
        Event::Alias(anchor) => return anchors[&anchor].clone(),
        Event::Scalar(text, _, anchor, _) => (anchor, Value::String(text.into_owned())),
        Event::SequenceStart(anchor, _) => {
            let mut items = Vec::new();
            while let Some(event) = events.next().filter(|event| *event != Event::SequenceEnd) {
                items.push(value(event, events, anchors));
            }
            (anchor, Value::Array(items))
        }
        Event::MappingStart(anchor, _) => {
            let mut pairs = Map::new();
            while let Some(event) = events.next().filter(|event| *event != Event::MappingEnd) {
                let Event::Scalar(key, ..) = event else { panic!("no key: {event:?}") };
                let event = events.next().expect("a value");
                let former = pairs.insert(key.into_owned(), value(event, events, anchors));
                assert_eq!(former, None, "a key is there twice");
            }
            (anchor, Value::Object(pairs))
        }
        event => panic!("no value: {event:?}"),
    };
    anchors.insert(anchor, read.clone());
    read
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

/// Returns what the image's description says with this word, once.
fn of_image(word: &str) -> String {
    let file = fs::read_to_string(root().join("packaging/container/Containerfile")).expect("an image");
    let lines: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix(word)).collect();
    let [line] = lines.as_slice() else { panic!("{word}: {lines:?}") };
    line.trim().to_owned()
}

#[test]
fn manifest_has_the_names_ports_and_paths_of_its_settings() {
    let manifest = Manifest::read();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("reveille.toml");
    fs::write(&file, manifest.settings()).expect("written");
    let variables = manifest.variables();
    let mut show = Command::new(BINARY);
    show.args(["config", "show", "-o", "json", "--config"]).arg(&file).env_clear().envs(&variables);
    let shown = show.output().expect("it runs");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let settings: BTreeMap<&str, &Value> =
        items(&shown).iter().map(|entry| (text(&entry["key"]), &entry["value"])).collect();

    let port = |key: &str| text(settings[key]).rsplit(':').next().unwrap_or_default();
    let ports = manifest.ports();
    assert_eq!(ports, [("admin", port("listen")), ("peers", port("peer_listen")), ("http", port("http"))].into());
    let pod = &manifest.set()["spec"]["template"];
    let mut served = BTreeMap::new();
    for service in manifest.of_kind("Service") {
        assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
        for one in items(&service["spec"]["ports"]) {
            assert_eq!(ports[text(&one["name"])], text(&one["port"]), "{service}");
            served.insert(text(&one["name"]), text(&service["metadata"]["name"]));
        }
    }
    assert_eq!(served["peers"], text(&manifest.set()["spec"]["serviceName"]));
    assert_eq!(text(settings["advertise"]), format!("{POD}.{}:{}", served["peers"], ports["peers"]));
    assert!(items(settings["tls_names"]).iter().any(|name| text(name) == served["admin"]));
    for object in ["StatefulSet", "PodDisruptionBudget"] {
        assert_eq!(manifest.of_kind(object)[0]["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]);
    }

    let grace: u64 = text(&pod["spec"]["terminationGracePeriodSeconds"]).parse().expect("seconds");
    assert!(settings["shutdown_seconds"].as_u64().is_some_and(|seconds| seconds < grace));
    let claims = items(&manifest.set()["spec"]["volumeClaimTemplates"]).iter().map(|claim| &claim["metadata"]["name"]);
    let volumes: Vec<&Value> =
        items(&pod["spec"]["volumes"]).iter().map(|volume| &volume["name"]).chain(claims).collect();
    for container in [manifest.node(), manifest.prepare()] {
        assert_eq!(text(&container["image"]), concat!("reveille:", env!("CARGO_PKG_VERSION")));
        for mount in items(&container["volumeMounts"]) {
            assert!(volumes.contains(&&mount["name"]), "{mount}");
        }
    }
    let secrets = [&*variables["REVEILLE__JOIN"], text(settings["credentials.main.secret"])];
    let folders = secrets.map(|secret| secret.strip_prefix("file:").and_then(|path| Some(path.rsplit_once('/')?.0)));
    let folders = [Some(text(settings["data_dir"])), Some(text(settings["journal_dir"])), Some("/etc/reveille")]
        .into_iter()
        .chain(folders);
    for folder in folders {
        assert!(folder.is_some_and(|folder| manifest.mounted().contains(folder)), "{folder:?} is not mounted");
    }
}

#[test]
fn image_has_the_user_ports_and_command_of_the_manifest() {
    let manifest = Manifest::read();
    let user = &manifest.set()["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(of_image("USER"), format!("{}:{}", text(&user["runAsUser"]), text(&user["runAsGroup"])));
    let exposed = of_image("EXPOSE");
    assert_eq!(exposed.split(' ').collect::<BTreeSet<_>>(), manifest.ports().into_values().collect());
    assert!(manifest.mounted().contains(&*of_image("VOLUME")));
    assert_eq!(of_image("ENTRYPOINT"), "[\"reveille\"]");
    let command: Value = serde_json::from_str(&of_image("CMD")).expect("a list");
    assert_eq!(command, manifest.node()["args"]);
    assert!(of_image("FROM docker.io/library/rust:").starts_with(concat!(env!("CARGO_PKG_RUST_VERSION"), "-")));
}

/// The first pod makes the cluster, is ready, and makes join tokens for the others.
#[test]
fn pod_of_the_manifest_starts_and_answers_its_probes() {
    if let Some(why) = HostNetwork::missing().or_else(without_overlay) {
        return reveille_strict::skip(&why);
    }
    let manifest = Manifest::read();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    fs::copy(BINARY, folder.path().join("reveille")).expect("the binary");
    write("pod", START_POD);
    write("reveille.toml", text(&manifest.of_kind("ConfigMap")[0]["data"]["reveille.toml"]));
    let variables = manifest.variables().into_iter().map(|(name, value)| format!("{name}={value}\n"));
    write("variables", &(of_image("ENV") + "\n" + &variables.collect::<String>()));
    let (node, ports) = (manifest.node(), manifest.ports());
    let probes = ["startupProbe", "livenessProbe", "readinessProbe"].map(|probe| {
        let get = &node[probe]["httpGet"];
        let [scheme, port, path] = ["scheme", "port", "path"].map(|key| text(&get[key]));
        format!("{}://127.0.0.1:{}{path}\n", scheme.to_lowercase(), ports[port])
    });
    write("probes", &probes.concat());
    let arguments: Vec<&str> = items(&node["args"]).iter().map(text).collect();
    let prepare = manifest.prepare();
    assert_eq!(prepare["command"], serde_json::json!(["sh", "-euc"]));
    let mut command = Command::new("unshare");
    command.arg("--net").arg(root().join("packaging/view")).arg(folder.path()).args(["bash", "/tmp/pod"]);
    command.env("POD", POD).env("SERVICE", text(&manifest.set()["spec"]["serviceName"]));
    command.env("USER_OF_IMAGE", of_image("USER")).env("FOLDERS", format!("install {}", of_image("RUN install")));
    command.env("PREPARE", text(&prepare["args"][0])).env("ARGUMENTS", arguments.join(" "));
    let ended = command.output().expect("it runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
