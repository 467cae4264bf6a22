"""View of a served bench as an optical circuit switch (OCS), in the tables of SONiC's OCS design."""
