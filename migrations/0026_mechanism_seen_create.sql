-- Deployments and environments in which a mechanism was decided, each once, so that the counts of
-- both can be kept as rows come in.
CREATE TABLE mechanism_seen (
    mechanism_id text NOT NULL,
    subject      text NOT NULL,
    PRIMARY KEY (mechanism_id, subject)
);
INSERT INTO mechanism_seen (mechanism_id, subject)
SELECT DISTINCT m ->> 'id', s.subject
FROM evidence, LATERAL json_array_elements(doc -> 'mechanisms') AS m,
     LATERAL (VALUES ('deployment ' || job_id || ' ' || generation),
                     ('environment ' || (SELECT string_agg(part, '/' ORDER BY n)
                                         FROM json_array_elements_text(doc -> 'environment')
                                              WITH ORDINALITY AS t (part, n)))) AS s (subject)
WHERE m ->> 'quadrant' IS NOT NULL AND s.subject IS NOT NULL;
