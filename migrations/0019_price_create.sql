-- The price feed: what machines cost by cloud, region, market and instance, over the list compiled
-- in. A row is replaced when a price of the same or a later day comes.
CREATE TABLE price (
    cloud      text NOT NULL,
    region     text NOT NULL,
    market     text NOT NULL,
    instance   text NOT NULL,
    doc        json NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (cloud, region, market, instance)
);
