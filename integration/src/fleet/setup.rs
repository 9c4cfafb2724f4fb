//! From packages to a usable cluster, as docs/guides/installing.md and adding-a-node.md describe.

use anyhow::{Context as _, Result, ensure};

use super::{COMMAND, Fleet, MANAGER, NAMES, PACKAGES, PERSON, WORKERS};

/// Removes two settings of container images that a host lacks: the ban on starting and stopping
/// services, and the update of the manual index, which costs time.
pub(super) const PLAIN_HOST: &str = "rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update";

/// The permissions of the manager, and a listener that other hosts reach.
const MANAGER_PAPERS: &str = "\
rmctl ca init --dir /etc/headroom/authority --name prod
rmctl ca issue manager --dir /etc/headroom/authority --at rm.example --tls /etc/headroom/tls
systemd-tmpfiles --create headroom.conf
ls -l /etc/headroom/tls/key.pem /etc/headroom/authority/ca.key";

const MANAGER_CONFIGURATION: &str = r#"sed -i -e 's|^listen = .*|listen = "0.0.0.0:7070"|' -e 's|^anonymous = .*|anonymous = "nothing"|' \
    -e 's|^# tls = .*|tls = "/etc/headroom/tls"|' -e 's|^# authority = .*|authority = "/etc/headroom/authority"|' \
    /etc/headroom/resourcemanager.toml
grep -E '^(listen|tls|authority|anonymous)' /etc/headroom/resourcemanager.toml
mkdir -p /etc/systemd/system/headroom-resourcemanager.socket.d
cat > /etc/systemd/system/headroom-resourcemanager.socket.d/override.conf <<'END'
[Socket]
ListenStream=
ListenStream=0.0.0.0:7070
ListenStream=/run/headroom/resourcemanager.sock
END
systemctl daemon-reload
resourcemanager --config /etc/headroom/resourcemanager.toml --check-config
systemctl enable --now headroom-resourcemanager
rmctl status"#;

impl Fleet {
    /// Installs all hosts, starts the daemons, and sets up the user.
    pub fn set_up(&mut self) -> Result<()> {
        self.step("install, three hosts at once", |fleet| fleet.install())?;
        self.step("manager: authority, certificate, listener, start", |fleet| {
            fleet.on(MANAGER, MANAGER_PAPERS)?;
            fleet.on(MANAGER, MANAGER_CONFIGURATION)?;
            let first = fleet.on(MANAGER, "rmctl acl bootstrap -o name > /root/admin.token && chmod 600 /root/admin.token")?;
            ensure!(first.is_empty(), "the secret went to the file: {first}");
            let again = fleet.tried(MANAGER, "rmctl acl bootstrap")?;
            ensure!(again.code == 4, "the first token is accepted only once: {} {}", again.code, again.stderr);
            Ok(())
        })?;
        for host in WORKERS {
            self.step(
                &format!("{}: join, configure, start", NAMES[host]),
                |fleet| fleet.add_node(host),
            )?;
        }
        self.step("both workers are ready", |fleet| fleet.until_ready())?;
        self.step("a user: account, token, policy", |fleet| fleet.welcome())
    }

    fn install(&self) -> Result<()> {
        self.on_all(&[MANAGER, WORKERS[0], WORKERS[1]], PLAIN_HOST)?;
        let install = |kind| {
            format!(
                "dpkg --force-unsafe-io --install {PACKAGES}/now/headroom-{kind}_*.deb {PACKAGES}/now/headroom-client_*.deb"
            )
        };
        let others = WORKERS.map(|host| self.host(host).send(&install("node")));
        self.on(MANAGER, &install("manager"))?;
        for (host, script) in WORKERS.into_iter().zip(others) {
            let ran = self.host(host).wait(&script?, COMMAND)?;
            ensure!(
                ran.code == 0,
                "{}: {}{}",
                NAMES[host],
                ran.stdout,
                ran.stderr
            );
            self.book
                .command(NAMES[host], '#', &install("node"), &ran.stdout);
        }
        Ok(())
    }

    fn add_node(&self, host: usize) -> Result<()> {
        let name = NAMES[host];
        let made = format!(
            "rmctl acl join-token create --node {name} --at {name}.example --out /root/{name}.token"
        );
        let output = self.tried(MANAGER, &made)?;
        self.book.command(
            NAMES[MANAGER],
            '#',
            &made,
            &format!("{}{}", output.stdout, output.stderr),
        );
        let words = output
            .stderr
            .split_whitespace()
            .skip_while(|word| *word != "--pin");
        let pin = words
            .clone()
            .nth(1)
            .with_context(|| format!("no pin in {:?}", output.stderr))?;
        // The operator copies the token to the node.
        let token = self
            .tried(
                MANAGER,
                &format!("cat /root/{name}.token && rm /root/{name}.token"),
            )?
            .stdout;
        self.tried(
            host,
            &format!("umask 077; printf %s '{}' > /root/join.token", token.trim()),
        )?;
        self.on(
            host,
            &format!(
                "rmctl node join --addr https://rm.example:7070 --token-file /root/join.token --pin {pin} --name {name} --at {name}.example"
            ),
        )?;
        self.on(host, &format!(
            "rm /root/join.token\ncat > /etc/headroom/nodeagent.toml <<'END'\nrm = \"https://rm.example:7070\"\nlisten = \"0.0.0.0:7072\"\n\
             tls = \"/etc/headroom/tls\"\nadvertise = \"{name}.example\"\nreserve = \"512MiB\"\nEND\n\
             nodeagent --config /etc/headroom/nodeagent.toml --check-config\n\
             systemctl enable --now headroom-containers headroom-nodeagent"
        ))?;
        Ok(())
    }

    /// Creates the user's account on all hosts, a token, and the address of the cluster.
    fn welcome(&self) -> Result<()> {
        self.on_all(
            &[MANAGER, WORKERS[0], WORKERS[1]],
            &format!("useradd --uid 1500 --create-home --home-dir /srv/{PERSON} {PERSON}"),
        )?;
        self.on(
            MANAGER,
            &format!(
                "rmctl acl policy set {PERSON} --right cluster:read,job:read,job:submit,job:kill"
            ),
        )?;
        let by_account = self.person(MANAGER, "rmctl acl token self")?;
        ensure!(
            by_account.contains("job:submit") && !by_account.contains("admin"),
            "{by_account}"
        );
        self.on(
            MANAGER,
            &format!("rmctl acl token create --user {PERSON} --right cluster:read,job:read,job:submit,job:kill --lifetime 90d --out /root/{PERSON}.token"),
        )?;
        let token = self
            .tried(MANAGER, &format!("cat /root/{PERSON}.token"))?
            .stdout;
        let host = WORKERS[0];
        self.on(
            host,
            "cat > /etc/headroom/client.toml <<'END'\naddr = \"https://rm.example:7070\"\nca = \"/etc/headroom/tls/ca.pem\"\nEND",
        )?;
        self.person_tried(
            host,
            &format!(
                "umask 077; mkdir -p .config; printf %s '{}' > .config/headroom.token",
                token.trim()
            ),
        )?;
        self.person(host, &format!(
            "rmctl context set prod --addr https://rm.example:7070 --cacert /etc/headroom/tls/ca.pem --token-file /srv/{PERSON}/.config/headroom.token"
        ))?;
        let by_token = self.person(host, "rmctl acl token self && rmctl status")?;
        ensure!(
            by_token.contains(PERSON) && by_token.contains("token"),
            "{by_token}"
        );
        let refused = self.person_tried(host, "rmctl node drain worker-2 -y")?;
        ensure!(
            refused.code == 5 && refused.stderr.contains("HR0403"),
            "{} {}",
            refused.code,
            refused.stderr
        );
        Ok(())
    }
}
