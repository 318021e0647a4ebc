-- During a canary two generations of a rank are judged in one tick: each has its own row.
ALTER TABLE evidence DROP CONSTRAINT evidence_pkey;
ALTER TABLE evidence ADD PRIMARY KEY (tick_id, job_id, rank, generation);
DROP INDEX belief_event_evidence;
CREATE UNIQUE INDEX belief_event_evidence ON belief_event (tick_id, job_id, rank, generation)
    WHERE source = 'evidence';
