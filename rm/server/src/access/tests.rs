//! Tokens, shares and policies: validity, expiry, restart, forged secrets.

use super::*;
use headroom_wire::v1::error::ErrorCode;

const NOW: UnixMillis = UnixMillis(1_000_000);

fn fresh() -> AccessControl {
    AccessControl::restored(&SavedAccess::default()).expect("the kernel has random numbers")
}

fn give(
    all: &mut AccessControl,
    whose: TokenPurpose,
    expires: Option<UnixMillis>,
    first: bool,
) -> Result<SecretToken, ProblemDetails> {
    let kind = match whose {
        TokenPurpose::User { .. } => SecretTokenKind::User,
        TokenPurpose::Join { .. } => SecretTokenKind::Join,
    };
    let token = SecretToken::mint(kind).expect("the kernel has random numbers");
    let held = StoredToken {
        hash: token.hash(),
        whose,
        about: String::new(),
        by: "root".into(),
        created: NOW,
        expires,
    };
    all.change(
        AccessChange::Keep {
            accessor: token.accessor(),
            held,
            first,
        },
        NOW,
    )?;
    Ok(token)
}

fn alice() -> TokenPurpose {
    TokenPurpose::User {
        user: "alice".into(),
        rights: AccessRights::user_default(),
    }
}

#[test]
fn a_token_is_valid_until_revocation_or_expiry() {
    let mut all = fresh();
    let token =
        give(&mut all, alice(), Some(UnixMillis(NOW.0 + 10)), false).expect("the store has room");
    let who = all
        .bearer(&token.reveal(), NOW)
        .expect("the token is valid");
    assert!(
        matches!(&who, Principal::User { name, .. } if name == "alice"),
        "{who:?}"
    );
    assert_eq!(
        all.bearer(&token.reveal(), UnixMillis(NOW.0 + 10))
            .expect_err("it has expired")
            .code,
        ErrorCode::HR0401
    );
    let restored = AccessControl::restored(&all.saved()).expect("reads");
    restored
        .bearer(&token.reveal(), NOW)
        .expect("the token is valid after a restart");
    all.change(AccessChange::Revoke(token.accessor()), NOW)
        .expect("there");
    assert_eq!(
        all.bearer(&token.reveal(), NOW).expect_err("revoked").code,
        ErrorCode::HR0401
    );
    assert_eq!(
        all.change(AccessChange::Revoke(token.accessor()), NOW)
            .expect_err("gone")
            .code,
        ErrorCode::HR0404
    );
}

#[test]
fn a_forged_secret_of_a_known_token_is_refused() {
    let mut all = fresh();
    let token = give(&mut all, alice(), None, false)
        .expect("the store has room")
        .reveal();
    let (head, secret) = token.rsplit_once('_').expect("the token has three parts");
    let turned: String = secret
        .chars()
        .map(|c| if c == '0' { '1' } else { '0' })
        .collect();
    assert_eq!(
        all.bearer(&format!("{head}_{turned}"), NOW)
            .expect_err("the secret is forged")
            .code,
        ErrorCode::HR0401
    );
    assert_eq!(
        all.bearer(&token.replace("hru_", "hrj_"), NOW)
            .expect_err("another kind")
            .code,
        ErrorCode::HR0401
    );
}

/// For none of the three token kinds does a second text authenticate.
#[test]
fn every_changed_character_makes_a_token_invalid() {
    let mut all = fresh();
    let attempt: AttemptId = "sort.1@2".parse().expect("an attempt");
    let user = give(&mut all, alice(), None, false)
        .expect("the store has room")
        .reveal();
    for token in [
        user,
        all.master_token(&attempt),
        all.reader_token(&attempt.app),
    ] {
        let good = all.bearer(&token, NOW).expect("the token is valid");
        for at in 0..token.len() {
            for bit in [1, 2, 0x40] {
                let mut bytes = token.clone().into_bytes();
                bytes[at] ^= bit;
                let Ok(changed) = String::from_utf8(bytes) else {
                    continue;
                };
                assert_eq!(
                    all.bearer(&changed, NOW).map_err(|p| p.code),
                    Err(ErrorCode::HR0401),
                    "byte {at}, {good:?}"
                );
            }
        }
        for longer in [
            format!("{token}0"),
            format!(" {token}"),
            format!("{token}\n"),
            token[..token.len() - 2].to_owned(),
        ] {
            assert_eq!(
                all.bearer(&longer, NOW)
                    .expect_err("the text differs from the token")
                    .code,
                ErrorCode::HR0401
            );
        }
    }
}

#[test]
fn an_expired_join_token_is_refused() {
    let mut all = fresh();
    let whose = TokenPurpose::Join {
        node: None,
        names: vec![],
    };
    let token = give(&mut all, whose, Some(UnixMillis(NOW.0 + 10)), false)
        .expect("the store has room")
        .reveal();
    all.joins(&token, NOW).expect("the token is still valid");
    let late = all
        .joins(&token, UnixMillis(NOW.0 + 10))
        .expect_err("the token has expired");
    assert!(
        late.code == ErrorCode::HR0401 && late.detail.contains("has expired"),
        "{late}"
    );
    assert_eq!(
        fresh()
            .joins(&token, NOW)
            .expect_err("the token is of another cluster")
            .code,
        ErrorCode::HR0401
    );
}

#[test]
fn a_join_token_is_valid_for_a_single_join() {
    let mut all = fresh();
    let whose = TokenPurpose::Join {
        node: Some("n1".parse().expect("a node")),
        names: vec![],
    };
    let token = give(&mut all, whose, None, false).expect("the store has room");
    all.bearer(&token.reveal(), NOW)
        .expect_err("a join token authenticates no other call");
    let (accessor, node, _) = all.joins(&token.reveal(), NOW).expect("the token is valid");
    assert_eq!(node.map(|n| n.to_string()), Some("n1".into()));
    all.change(AccessChange::Spend { accessor }, NOW)
        .expect("the first use succeeds");
    assert_eq!(
        all.change(AccessChange::Spend { accessor }, NOW)
            .expect_err("it is used up")
            .code,
        ErrorCode::HR0401
    );
    all.joins(&token.reveal(), NOW)
        .expect_err("the token is used up");
}

#[test]
fn the_first_token_is_created_only_once() {
    let mut all = fresh();
    give(&mut all, alice(), None, true).expect("the first token is created");
    let mut again = AccessControl::restored(&all.saved()).expect("reads");
    assert_eq!(
        give(&mut again, alice(), None, true)
            .expect_err("the first token exists")
            .code,
        ErrorCode::HR0409
    );
    give(&mut again, alice(), None, false).expect("other tokens are created");
}

#[test]
fn application_tokens_survive_a_restart_and_fail_in_other_clusters() {
    let all = fresh();
    let attempt: AttemptId = "sort.1@2".parse().expect("an attempt");
    let token = all.master_token(&attempt);
    let again = AccessControl::restored(&all.saved()).expect("reads");
    assert_eq!(
        again.bearer(&token, NOW),
        Ok(Principal::Master(attempt.clone()))
    );
    assert_eq!(
        again.bearer(&all.reader_token(&attempt.app), NOW),
        Ok(Principal::Executor(attempt.app))
    );
    assert_eq!(
        fresh()
            .bearer(&token, NOW)
            .expect_err("another cluster has another key")
            .code,
        ErrorCode::HR0401
    );
}

#[test]
fn a_policy_replaces_the_default_rights() {
    let mut all = fresh();
    let rights = |all: &AccessControl, user: &str, groups: &[&str]| {
        let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        all.rights(user, &groups, AccessRights::user_default())
    };
    let allow = |subject: &str, words: &[&str]| AccessChange::Allow {
        subject: subject.into(),
        rights: checked(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
            .expect("rights"),
    };
    assert_eq!(rights(&all, "alice", &[]), AccessRights::user_default());
    all.change(allow("alice", &["job:read"]), NOW)
        .expect("the store has room");
    all.change(allow("@etl", &["job:submit", "queue:root.etl"]), NOW)
        .expect("the store has room");
    assert_eq!(rights(&all, "alice", &[]).to_string(), "job:read");
    let both = rights(&all, "alice", &["etl"]);
    assert!(
        both.has(&AccessRight::JobSubmit)
            && both.has(&AccessRight::JobRead)
            && !both.has(&AccessRight::JobKill)
    );
    assert_eq!(
        all.rights("root", &[], AccessRights::all()),
        AccessRights::all(),
        "a policy does not restrict an administrator"
    );
    all.change(
        AccessChange::Forget {
            subject: "alice".into(),
        },
        NOW,
    )
    .expect("there");
    assert_eq!(rights(&all, "alice", &[]), AccessRights::user_default());
    assert_eq!(checked(&[]).expect_err("none").code, ErrorCode::HR0400);
    assert_eq!(
        checked(&["root".into()]).expect_err("none").code,
        ErrorCode::HR0400
    );
}

#[test]
fn a_state_that_cannot_be_stored_is_refused() {
    let mut all = fresh();
    let many = |n: u32| TokenPurpose::User {
        user: "alice".into(),
        rights: (0..20_000)
            .map(|k| format!("queue-view:root.q{n}x{k:06}"))
            .map(|word| word.parse::<AccessRight>().expect("a right"))
            .collect(),
    };
    let given: Vec<_> = (0..8)
        .map(|n| give(&mut all, many(n), None, false))
        .collect();
    let kept = given.iter().filter(|given| given.is_ok()).count();
    assert!((1..8).contains(&kept), "{kept} of 8 are stored");
    for refused in given.into_iter().filter_map(Result::err) {
        assert_eq!(refused.code, ErrorCode::HR0413);
    }
    assert!(all.saved_size() <= MAX_SAVED_BYTES);
    let accessors: Vec<TokenAccessor> = all.tokens.keys().copied().collect();
    assert_eq!(accessors.len(), kept, "a refused token is not kept");
    for accessor in accessors {
        all.change(AccessChange::Revoke(accessor), NOW)
            .expect("revokes");
    }
}

#[test]
fn a_cluster_with_an_administrator_needs_no_first_token() {
    let mut all = fresh();
    let admin = || TokenPurpose::User {
        user: "admin".into(),
        rights: AccessRights::all(),
    };
    give(&mut all, alice(), None, false).expect("stored");
    give(&mut all, admin(), None, false).expect("stored");
    let refused = give(&mut all, admin(), None, true).expect_err("an administrator exists");
    assert_eq!(refused.code, ErrorCode::HR0409);
}
