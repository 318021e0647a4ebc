-- The deployment book: what each deployment is, how it did so far, and its contrasts.
CREATE TABLE deployment (
    job_id     uuid NOT NULL,
    generation bigint NOT NULL,
    rank       bigint NOT NULL,
    subject    json NOT NULL,
    life       json NOT NULL,
    contrasts  json NOT NULL,
    PRIMARY KEY (job_id, generation, rank)
);
-- Newest generation of each rank that has left the book.
CREATE TABLE deployment_closed (
    job_id     uuid NOT NULL,
    rank       bigint NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (job_id, rank)
);
-- Running sums of contrasts.
CREATE TABLE contrast_sum (
    edge        text NOT NULL,
    scope       text NOT NULL,
    environment text NOT NULL,
    doc         json NOT NULL,
    PRIMARY KEY (edge, scope, environment)
);
