"""Calls every method of yarn-api-client: those of its resource manager and those of its node manager."""

import json
import sys
import time

from calls import Calls, print_json
from yarn_api_client import NodeManager, ResourceManager

story = json.loads(sys.argv[1])
app, attempt = story["app"], story["attempt"]
live, dead, node = story["live"], story["dead"], story["node"]

# Taking the endpoint from a list makes the client look at /cluster first.
rm = Calls(ResourceManager(service_endpoints=[story["rm"]]))
rm.call("get_active_endpoint")
rm.call("cluster_information")
rm.call("cluster_metrics")
rm.call("cluster_scheduler")
rm.call("cluster_applications")
rm.call("cluster_applications", label="running", states=["RUNNING"], user="ann", queue="default", limit=5)
rm.call("cluster_applications", label="killed", state="KILLED", final_status="KILLED")
rm.call("cluster_applications", label="of_a_type", application_types=["HEADROOM"], name="scenario", de_selects=["timeouts"])
rm.call("cluster_applications", label="started", started_time_begin=1, started_time_end=2**53, application_tags=["none"])
rm.call("cluster_application_statistics")
rm.call("cluster_application_statistics", label="statistics_of_running", states=["RUNNING"], application_types=["HEADROOM"])
rm.call("cluster_application", app)
rm.call("cluster_application_attempts", app)
rm.call("cluster_application_attempt_info", app, attempt)
rm.call("cluster_application_attempt_containers", app, attempt)
rm.call("cluster_application_attempt_container_info", app, attempt, dead)
rm.call("cluster_application_state", app)
rm.call("cluster_nodes")
rm.call("cluster_nodes", label="running_nodes", states=["RUNNING"])
rm.call("cluster_node", node)
rm.call("cluster_get_application_queue", app)
rm.call("cluster_get_application_priority", app)
rm.call("cluster_application_timeouts", app)
rm.call("cluster_application_timeout", app, "LIFETIME")
queue = rm.call("cluster_scheduler_queue", "default")
rm.call("cluster_scheduler_queue", "none", label="no_queue")
partition = rm.call("cluster_queue_partition", queue, "")
rm.call("cluster_scheduler_queue_availability", partition, 99)
rm.call("application_activities", app)

# What changes something.
rm.call("cluster_change_application_priority", app, 3)
rm.call("cluster_change_application_queue", app, "default")
rm.call("cluster_update_application_timeout", app, "LIFETIME", "2090-01-01T00:00:00.000+0000")
new = rm.call("cluster_new_application")
submission = {
    "application-id": new["application-id"],
    "application-name": "by a client",
    "application-type": "SCRIPT",
    "am-container-spec": {
        "commands": {"command": "echo $GREETING 1><LOG_DIR>/stdout; exec sleep 100"},
        "environment": {"entry": [{"key": "GREETING", "value": "hello"}]},
    },
    "resource": {"memory": 32, "vCores": 1},
    "max-app-attempts": 1,
}
rm.call("cluster_submit_application", submission)
rm.call("cluster_submit_application", submission, label="submitted_again")
for _ in range(200):
    submitted = rm.call("cluster_application", new["application-id"], label="submitted")["app"]
    if submitted["runningContainers"] == 1:
        break
    time.sleep(0.05)
rm.call("cluster_application_kill", new["application-id"])
for _ in range(400):
    if rm.call("cluster_application_state", new["application-id"], label="state_after_kill")["state"] == "KILLED":
        break
    time.sleep(0.05)
rm.call("cluster_application_kill", new["application-id"], label="killed_again")
rm.call("cluster_container_signal", live, "OUTPUT_THREAD_DUMP", label="thread_dump")

# What is not offered here has to be a clean error.
rm.call("cluster_node_update_resource", node, {"resource": {"memory": 1, "vCores": 1}, "overCommitTimeout": -1})
rm.call("cluster_reservations")
rm.call("cluster_new_reservation")
rm.call("cluster_submit_reservation", {})
rm.call("cluster_update_reservation", {})
rm.call("cluster_delete_reservation", "reservation_1_1")
rm.call("cluster_new_delegation_token", "ann")
rm.call("cluster_renew_delegation_token", "token")
rm.call("cluster_cancel_delegation_token", "token")
rm.call("cluster_scheduler_conf_mutation")
rm.call("cluster_modify_scheduler_conf_mutation", {})
rm.call("scheduler_activities")

nm = Calls(NodeManager(service_endpoint=story["nm"]))
nm.call("node_information")
nm.call("node_applications")
nm.call("node_applications", label="running_applications", state="RUNNING")
nm.call("node_applications", label="new_applications", state="NEW")
nm.call("node_application", app)
nm.call("node_containers")
nm.call("node_container", dead)
nm.call("node_container", live, label="live_container")
nm.call("auxiliary_services")
nm.call("auxiliary_services_update", {})

# The last call, because the container is gone then.
rm.call("cluster_container_signal", live, "GRACEFUL_SHUTDOWN")

# Machinery that every call goes through, and a method that reads a file of this host.
machinery = ["request", "construct_parameters", "response_class"]
print_json(
    rm=rm.results,
    nm=nm.results,
    new=new,
    left_out=rm.left_out(machinery + ["cluster_node_container_memory"]) + nm.left_out(machinery),
)
