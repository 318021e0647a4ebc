-- How many events moved each belief, counted as they come in: a list must not read the whole log.
ALTER TABLE belief ADD COLUMN n_events bigint NOT NULL DEFAULT 0;
UPDATE belief SET n_events = t.n
FROM (SELECT subject, count(*) AS n FROM belief_event, unnest(subjects) AS u (subject)
      GROUP BY subject) AS t
WHERE t.subject = belief.subject;
