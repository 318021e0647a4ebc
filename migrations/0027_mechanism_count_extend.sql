-- What the posterior review needs beside the number of rows.
ALTER TABLE mechanism_count
    ADD COLUMN n_deployments  bigint NOT NULL DEFAULT 0,
    ADD COLUMN n_environments bigint NOT NULL DEFAULT 0,
    ADD COLUMN first_tick     bigint,
    ADD COLUMN last_tick      bigint;
UPDATE mechanism_count AS c SET
    n_deployments = (SELECT count(*) FROM mechanism_seen AS s
                     WHERE s.mechanism_id = c.mechanism_id AND s.subject LIKE 'deployment %'),
    n_environments = (SELECT count(*) FROM mechanism_seen AS s
                      WHERE s.mechanism_id = c.mechanism_id AND s.subject LIKE 'environment %');
UPDATE mechanism_count AS c SET first_tick = t.first_tick, last_tick = t.last_tick
FROM (SELECT m ->> 'id' AS id, min(tick_id) AS first_tick, max(tick_id) AS last_tick
      FROM evidence, LATERAL json_array_elements(doc -> 'mechanisms') AS m
      WHERE m ->> 'quadrant' IS NOT NULL GROUP BY 1) AS t
WHERE t.id = c.mechanism_id;
