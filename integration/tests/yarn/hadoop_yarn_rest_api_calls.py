"""Calls every method of hadoop-yarn-rest-api."""

import json
import sys

from calls import Calls, print_json
from hadoop.yarn import Yarn

story = json.loads(sys.argv[1])
yarn = Calls(Yarn(story["rm"]))
yarn.call("cluster_information")
yarn.call("cluster_metrics")
yarn.call("cluster_scheduler")
yarn.call("cluster_applications")
yarn.call("cluster_applications", {"states": "RUNNING", "limit": 1, "deSelects": "resourceRequests"}, label="running")
yarn.call("cluster_applications", {"states": "FAILED"}, label="failed")
yarn.call("cluster_appstatistics")
yarn.call("cluster_appstatistics", {"states": "RUNNING,KILLED"}, label="two_states")
yarn.call("cluster_application", story["app"])
yarn.call("cluster_application", "application_1700000000000_9999", label="no_application")
yarn.call("cluster_application_attempts", story["app"])
yarn.call("cluster_nodes")
yarn.call("cluster_nodes", {"states": "LOST"}, label="lost")
yarn.call("cluster_node", story["node"])

# It can ask for XML, which is not written here.
xml = Calls(Yarn(story["rm"], response_type="xml"))
xml.call("cluster_information")

print_json(yarn=yarn.results, xml=xml.results, left_out=yarn.left_out())
