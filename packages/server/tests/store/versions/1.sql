-- A store of version 1, as the first release made and filled it (sqlite3 .dump).
PRAGMA application_id = 1347703638;
BEGIN TRANSACTION;
CREATE TABLE precision_time_active_calibration (
	cluster_id INTEGER NOT NULL, 
	calibration_id INTEGER NOT NULL, 
	PRIMARY KEY (cluster_id), 
	FOREIGN KEY(cluster_id) REFERENCES precision_time_cluster (id) ON DELETE CASCADE, 
	UNIQUE (calibration_id), 
	FOREIGN KEY(calibration_id) REFERENCES precision_time_calibration (id) ON DELETE CASCADE
);
INSERT INTO "precision_time_active_calibration" VALUES(1,1);
CREATE TABLE precision_time_calibration (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	cluster_id INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	card TEXT NOT NULL, 
	created_us BIGINT NOT NULL, 
	FOREIGN KEY(cluster_id) REFERENCES precision_time_cluster (id) ON DELETE CASCADE
);
INSERT INTO "precision_time_calibration" VALUES(1,1,'{"points":[]}','{"rows":2}',1795467494035059);
CREATE TABLE precision_time_cluster (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR(200) NOT NULL, 
	document TEXT NOT NULL, 
	UNIQUE (name)
);
INSERT INTO "precision_time_cluster" VALUES(1,'pod','{"fields":{"device":"A100-SXM4-80GB","gpus":8},"anchors":[],"hardware":null,"note":""}');
CREATE TABLE precision_time_measurement (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	cluster_id INTEGER NOT NULL, 
	submission_id INTEGER, 
	document TEXT NOT NULL, 
	FOREIGN KEY(cluster_id) REFERENCES precision_time_cluster (id) ON DELETE CASCADE, 
	FOREIGN KEY(submission_id) REFERENCES precision_time_submission (id) ON DELETE CASCADE
);
INSERT INTO "precision_time_measurement" VALUES(1,1,1,'{"given":{"model":"resnet50","step_time_s":0.3},"defaults":{"gpus":8}}');
INSERT INTO "precision_time_measurement" VALUES(2,1,1,'{"given":{"model":"resnet50","step_time_s":0.3},"defaults":{"gpus":8}}');
CREATE TABLE precision_time_model (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR(200) NOT NULL, 
	label VARCHAR(200) NOT NULL, 
	kind VARCHAR(200) NOT NULL, 
	graph TEXT NOT NULL, 
	facts TEXT NOT NULL, 
	created_us BIGINT NOT NULL, 
	UNIQUE (name)
);
INSERT INTO "precision_time_model" VALUES(1,'uploads/0','mine','onnx','{"nodes":[]}','{"params":1}',1795467494051120);
CREATE TABLE precision_time_server (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	cluster VARCHAR(200) NOT NULL, 
	server VARCHAR(200) NOT NULL, 
	report TEXT NOT NULL, 
	at_us BIGINT NOT NULL, 
	UNIQUE (cluster, server)
);
INSERT INTO "precision_time_server" VALUES(1,'pod','node1','{"device":"A100"}',1767225600000000);
CREATE TABLE precision_time_store (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	version INTEGER NOT NULL
);
INSERT INTO "precision_time_store" VALUES(1,1);
CREATE TABLE precision_time_submission (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	cluster_id INTEGER NOT NULL, 
	"key" VARCHAR(200) NOT NULL, 
	rows_sha256 TEXT NOT NULL, 
	UNIQUE (cluster_id, "key"), 
	FOREIGN KEY(cluster_id) REFERENCES precision_time_cluster (id) ON DELETE CASCADE
);
INSERT INTO "precision_time_submission" VALUES(1,1,'once','5f286daa7ab34ce40c85d9f3f294d9ad1e9b76bba7a2b3f8c74153382d4f794f');
CREATE INDEX precision_time_calibration_cluster ON precision_time_calibration (cluster_id, id);
CREATE INDEX precision_time_measurement_cluster ON precision_time_measurement (cluster_id, id);
CREATE INDEX precision_time_measurement_submission ON precision_time_measurement (submission_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('precision_time_store',1);
INSERT INTO "sqlite_sequence" VALUES('precision_time_cluster',1);
INSERT INTO "sqlite_sequence" VALUES('precision_time_submission',1);
INSERT INTO "sqlite_sequence" VALUES('precision_time_measurement',2);
INSERT INTO "sqlite_sequence" VALUES('precision_time_calibration',1);
INSERT INTO "sqlite_sequence" VALUES('precision_time_model',1);
INSERT INTO "sqlite_sequence" VALUES('precision_time_server',1);
COMMIT;
