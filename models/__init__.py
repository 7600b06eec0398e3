"""Model adapters. Only this folder names model families and weight formats."""
