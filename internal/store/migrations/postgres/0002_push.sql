-- Whoever listens hears of each change when it is committed, whatever program made it.
CREATE FUNCTION agentgate_state_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('agentgate_state', NEW.generation::text);
    RETURN NULL;
END $$;
CREATE TRIGGER meta_moved AFTER UPDATE ON meta FOR EACH ROW EXECUTE FUNCTION agentgate_state_moved();
