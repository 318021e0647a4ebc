-- Evidence rows that decided each mechanism, counted as the rows come in: a tick must not read the
-- whole history to know it.
CREATE TABLE mechanism_count (
    mechanism_id text PRIMARY KEY,
    n_decided    bigint NOT NULL
);
INSERT INTO mechanism_count (mechanism_id, n_decided)
SELECT m ->> 'id', count(*)
FROM evidence, LATERAL json_array_elements(doc -> 'mechanisms') AS m
WHERE m ->> 'quadrant' IS NOT NULL
GROUP BY 1;
