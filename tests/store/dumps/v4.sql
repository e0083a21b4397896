BEGIN TRANSACTION;
CREATE TABLE baselines (
        host TEXT NOT NULL,
        gpu TEXT NOT NULL,
        test TEXT NOT NULL,
        key TEXT NOT NULL,
        value DOUBLE PRECISION NOT NULL,
        unit TEXT NOT NULL,
        run TEXT NOT NULL,
        at TEXT NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (host, gpu, test, key)
    );
INSERT INTO "baselines" VALUES('gpu01','GPU-1','memory.copy','k0',2950.25,'gb_s','7f3a12c4d5e6','2026-11-30T14:00:00.000Z','{"driver":"580.159.04"}');
CREATE TABLE events (
        run TEXT NOT NULL,
        seq BIGINT NOT NULL,
        at TEXT NOT NULL,
        host TEXT,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    );
INSERT INTO "events" VALUES('7f3a12c4d5e6',1,'2026-11-30T14:00:00.000Z',NULL,'run_started','{"playbook":"provision","inventory":"lab.yaml","hosts":["gpu01","gpu02"],"operator":"anna","check":false,"diff":false}');
INSERT INTO "events" VALUES('7f3a12c4d5e6',2,'2026-11-30T14:00:10.000Z','gpu01','step_result','{"step":"1.package.present","task":"packages","status":"changed"}');
INSERT INTO "events" VALUES('7f3a12c4d5e6',3,'2026-11-30T14:00:20.000Z',NULL,'run_ended','{"exit_code":5,"duration_s":20.0,"counts":{"converged":1,"pending":1}}');
CREATE TABLE host_states (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        state TEXT NOT NULL,
        detail TEXT NOT NULL,
        at TEXT NOT NULL,
        touched INTEGER NOT NULL,
        PRIMARY KEY (run, host)
    );
INSERT INTO "host_states" VALUES('7f3a12c4d5e6','gpu01','converged','{}','2026-11-30T16:29:13.205Z',1);
INSERT INTO "host_states" VALUES('7f3a12c4d5e6','gpu02','pending','{"reason":"containers of others"}','2026-11-30T16:29:13.207Z',0);
CREATE TABLE inspections (
        digest TEXT NOT NULL,
        source TEXT NOT NULL,
        reader INTEGER NOT NULL,
        place TEXT NOT NULL,
        at TEXT NOT NULL,
        facts TEXT NOT NULL,
        PRIMARY KEY (digest, source)
    );
INSERT INTO "inspections" VALUES('sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','configuration',1,'registry.example.net:5000','2026-12-01T00:58:00.000Z','{"cuda":"12.8"}');
CREATE TABLE plans (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        segment INTEGER NOT NULL,
        plan_hash TEXT NOT NULL,
        plan TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (run, host, segment, plan_hash)
    );
INSERT INTO "plans" VALUES('7f3a12c4d5e6','gpu01',1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','{"segment":1,"steps":[]}','2026-11-30T16:29:13.205Z');
CREATE TABLE reports (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        at TEXT NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (run, host)
    );
INSERT INTO "reports" VALUES('7f3a12c4d5e6','gpu01','2026-11-30T16:29:13.208Z','{"schema":"fleet.report/1","status":"converged"}');
CREATE TABLE rollout_claims (
        claim TEXT PRIMARY KEY,
        run TEXT NOT NULL,
        host TEXT NOT NULL
    );
INSERT INTO "rollout_claims" VALUES('gpu01','7f3a12c4d5e6','gpu01');
INSERT INTO "rollout_claims" VALUES('gpu02','7f3a12c4d5e6','gpu02');
CREATE TABLE rollout_hosts (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        number BIGINT NOT NULL,
        state TEXT NOT NULL,
        detail TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (run, host)
    );
INSERT INTO "rollout_hosts" VALUES('7f3a12c4d5e6','gpu01',1,'preflight','{"counted":null}','2026-12-01T01:18:06.580Z');
CREATE TABLE rollout_transitions (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        number BIGINT NOT NULL,
        state TEXT NOT NULL,
        detail TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (run, host, number)
    );
INSERT INTO "rollout_transitions" VALUES('7f3a12c4d5e6','gpu01',1,'preflight','{"counted":null}','2026-12-01T01:18:06.580Z');
CREATE TABLE rollouts (
        run TEXT PRIMARY KEY,
        document TEXT NOT NULL,
        control TEXT NOT NULL,
        revision BIGINT NOT NULL,
        created_at TEXT NOT NULL,
        ended_at TEXT
    );
INSERT INTO "rollouts" VALUES('7f3a12c4d5e6','{"strategy":{},"members":[]}','{"phase":"running"}',2,'2026-12-01T01:18:05.782Z',NULL);
CREATE TABLE runs (
        run TEXT PRIMARY KEY,
        playbook TEXT NOT NULL,
        inventory TEXT NOT NULL,
        operator TEXT NOT NULL,
        controller TEXT NOT NULL,
        check_mode INTEGER NOT NULL,
        hosts TEXT NOT NULL,
        arguments TEXT NOT NULL,
        fleet_version TEXT NOT NULL,
        created_at TEXT NOT NULL,
        ended_at TEXT,
        exit_code INTEGER,
        duration_s DOUBLE PRECISION,
        counts TEXT
    );
INSERT INTO "runs" VALUES('7f3a12c4d5e6','provision','lab.yaml','anna','desk',0,'["gpu01","gpu02"]','{"limit":null}','0.1.0','2026-11-30T16:29:12.930Z','2026-11-30T14:00:20.000Z',5,20.0,'{"converged":1,"pending":1}');
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, at TEXT NOT NULL);
INSERT INTO "schema_version" VALUES(1,'2026-11-30T16:29:13.192Z');
INSERT INTO "schema_version" VALUES(2,'2026-11-30T22:55:24.971Z');
INSERT INTO "schema_version" VALUES(3,'2026-12-01T00:56:08.055Z');
INSERT INTO "schema_version" VALUES(4,'2026-12-01T01:18:06.512Z');
CREATE TABLE transitions (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        number BIGINT NOT NULL,
        state TEXT NOT NULL,
        detail TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (run, host, number)
    );
INSERT INTO "transitions" VALUES('7f3a12c4d5e6','gpu01',1,'connecting','{}','2026-11-30T16:29:12.932Z');
INSERT INTO "transitions" VALUES('7f3a12c4d5e6','gpu01',2,'applying','{}','2026-11-30T16:29:13.204Z');
INSERT INTO "transitions" VALUES('7f3a12c4d5e6','gpu01',3,'converged','{}','2026-11-30T16:29:13.205Z');
INSERT INTO "transitions" VALUES('7f3a12c4d5e6','gpu02',1,'pending','{"reason":"containers of others"}','2026-11-30T16:29:13.207Z');
CREATE INDEX runs_created_at ON runs (created_at);
CREATE INDEX events_host ON events (run, host, seq);
CREATE INDEX rollout_claims_run ON rollout_claims (run);
COMMIT;
