-- Manual settings of a DBA in performance_schema. Some of what variants switch on is off, and some on.
UPDATE performance_schema.setup_instruments SET ENABLED = 'NO', TIMED = 'NO' WHERE NAME LIKE 'statement/sql/create%';
UPDATE performance_schema.setup_instruments SET TIMED = 'NO' WHERE NAME = 'statement/sql/select';
UPDATE performance_schema.setup_instruments SET ENABLED = 'YES', TIMED = 'YES' WHERE NAME LIKE 'wait/io/file/sql/%';
UPDATE performance_schema.setup_consumers SET ENABLED = 'YES'
  WHERE NAME IN ('events_statements_history_long', 'events_waits_current');
UPDATE performance_schema.setup_consumers SET ENABLED = 'NO' WHERE NAME = 'events_statements_history';
INSERT INTO performance_schema.setup_actors (HOST, USER, ROLE) VALUES ('localhost', 'report', '%');
UPDATE performance_schema.setup_actors SET HISTORY = 'NO' WHERE USER = 'report';
INSERT INTO performance_schema.setup_objects VALUES ('TABLE', 'billing', '%', 'NO', 'NO');
