-- For how long a worker may say nothing before it is taken for gone: it beats every ten
-- seconds. Before its first reader in the order of names.
CREATE OR REPLACE FUNCTION fleet.silent_after() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '30 s' $$;
